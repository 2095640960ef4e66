"""The disk: segments of the topic logs, checkpoints, metadata. No sockets, no event loop."""
