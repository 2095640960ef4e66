"""The figures of nsqd: /stats, metrics and statsd."""
