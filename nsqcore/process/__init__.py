"""A daemon as a process: listening, stopping, logs, certificates."""
