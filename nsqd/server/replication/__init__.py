"""The connections between a home and its keepers: sockets, threads and time for `nsqd.replication`."""
