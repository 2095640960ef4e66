"""Carried logs: the model of their rules."""
