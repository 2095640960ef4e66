"""nsqd's sockets, timers and tasks, around the engine and the storage."""
