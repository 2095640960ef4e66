"""Brokers side by side: ``python -m bench.peers`` drives ours and those that Debian packages."""
