"""``python -m bench.peers``: compares our nsqd with the brokers that Debian packages."""
