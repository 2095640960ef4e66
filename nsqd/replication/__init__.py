"""Replication by ownership: the rules, the stream and the copies on disk. docs/internals/replication.md."""
