"""nsqd over HTTP: the route table, and the handlers by subject."""
