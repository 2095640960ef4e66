"""nsqd's sockets, timers and tasks, round the engine and the storage."""
