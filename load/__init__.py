"""``nsq-load``: puts load on a cluster by a profile and judges the run; Locust drives the users."""
