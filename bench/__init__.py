"""The benchmark: any NSQ-compatible nsqd, alone or beside a second one."""
