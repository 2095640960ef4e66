"""``python -m bench.clients``: compares client libraries on one nsqd."""
