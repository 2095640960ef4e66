"""Copies of a node's logs on other nodes: what both sides say, and what each does. No sockets, no clock."""
