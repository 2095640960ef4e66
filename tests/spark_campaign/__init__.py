"""A standalone Spark cluster that archives a topic while one process after the other is killed."""
