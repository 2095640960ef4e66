"""The disk: segments of the topic logs, checkpoints of what channels owe, metadata. No sockets, no event loop."""
