"""A model of what users of one nsqd see, beside the real process: the same operations are applied to both."""
