"""``nsqd-data``: looking into a data path while no nsqd runs on it, and repairing it."""
