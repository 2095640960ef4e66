"""nsq_stat: the figures of one channel, summed over all nsqd, a line per interval."""
