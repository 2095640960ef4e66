"""Campaigns on carried logs, and a model of their rules."""
