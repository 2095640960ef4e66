"""Looking at messages without consuming them: what is asked for, how it is found, how it is shown."""
