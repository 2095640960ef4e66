"""What tests share: real daemons as processes, and waiting for a condition with a deadline."""
