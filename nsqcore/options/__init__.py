"""Flags and configuration files: what may be given, what it may be, and the sentence when it is not."""
