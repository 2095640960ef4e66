"""Faults put into nsqd on purpose, one at a time: each is caught, or is shown to change nothing."""
