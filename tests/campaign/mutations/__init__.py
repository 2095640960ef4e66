"""Faults put into nsqd on purpose, one at a time; each must be caught, or is shown to change nothing."""
