"""nsq_stat: the statistics of one channel, summed over all nsqd, a line per interval."""
