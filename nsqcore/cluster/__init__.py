"""A running cluster seen over HTTP: typed answers, and partial failure as a value."""
