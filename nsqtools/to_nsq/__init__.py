"""to_nsq: publishes what it reads on stdin, record by record."""
