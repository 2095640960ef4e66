"""Policies: a named list that says what holds for topics and channels. Pure."""
