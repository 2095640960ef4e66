"""Replication on sockets, threads and files: what `nsqd.repl` decides is carried out here."""
