"""Policies: named settings for topics and channels. Pure."""
