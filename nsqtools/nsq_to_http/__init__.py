"""nsq_to_http: sends each message of a topic as an HTTP request."""
