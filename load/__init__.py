"""``nsq-load``: load on a cluster by profiles, judged; Locust drives the users."""
