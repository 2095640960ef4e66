"""nsq_channel: pauses, empties and sets back a channel, and handles its single messages, on all nsqd."""
