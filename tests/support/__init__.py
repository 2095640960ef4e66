"""Code that tests share, such as real daemons as processes, and waiting for a condition with a deadline."""
