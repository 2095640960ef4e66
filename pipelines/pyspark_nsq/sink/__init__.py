"""Publishes rows to topics."""
