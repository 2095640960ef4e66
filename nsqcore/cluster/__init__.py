"""Queries a running cluster over HTTP: typed answers, and partial failure as a value."""
