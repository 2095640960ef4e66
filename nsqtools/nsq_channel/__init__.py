"""nsq_channel: pauses, empties and sets back a channel, and handles single messages of it, on all nsqd."""
