"""Flags and configuration files: the options, their values, and the sentence for an invalid one."""
