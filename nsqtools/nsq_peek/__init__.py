"""nsq_peek: shows the messages of a topic or channel without consuming them."""
