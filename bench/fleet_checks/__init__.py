"""Compares the predictions of the fleet model with measurements."""
