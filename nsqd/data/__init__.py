"""``nsqd-data``: reads a data path while no nsqd runs on it, and repairs it."""
