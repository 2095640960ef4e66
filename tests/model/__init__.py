"""A model of one nsqd as its users see it. The same operations are applied to the real process."""
