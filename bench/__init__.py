"""The benchmark: measures any NSQ-compatible nsqd, alone or compared with a second one."""
