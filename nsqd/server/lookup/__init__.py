"""One session with each nsqlookupd."""
