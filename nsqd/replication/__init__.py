"""Copies of a node's logs on other nodes: what is said, and what each side does. No sockets, no clock."""
