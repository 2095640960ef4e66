"""nsq_to_file: archives topics to files; a message is finished when it is synced to disk."""
