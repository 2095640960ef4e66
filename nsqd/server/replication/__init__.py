"""Replication on the network: connections, threads and timers for `nsqd.replication`."""
