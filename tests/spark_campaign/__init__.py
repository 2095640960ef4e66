"""A standalone cluster of Spark that archives a topic, while one process after the other is killed."""
