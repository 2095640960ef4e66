"""Taking over the files that a Go nsqd left behind."""
