"""The command line tools: nsq_peek and nsq_channel, and those that NSQ has.

NSQ has nsq_stat, nsq_tail, to_nsq, nsq_to_file, nsq_to_http and nsq_to_nsq.
"""
