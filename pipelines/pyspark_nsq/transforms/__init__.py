"""DataFrame in, DataFrame out; one file per subject."""
