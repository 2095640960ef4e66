"""nsq_to_nsq: copies topics to other nsqd."""
