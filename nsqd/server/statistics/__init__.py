"""The statistics of nsqd: /stats, metrics and statsd."""
