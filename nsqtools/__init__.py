"""The command line tools of NSQ: nsq_stat, nsq_tail, to_nsq, nsq_to_file, nsq_to_http and nsq_to_nsq."""
