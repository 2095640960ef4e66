"""nsq_tail: prints the messages of topics as they arrive."""
