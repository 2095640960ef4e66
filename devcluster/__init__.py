"""The whole cluster on one machine, for looking at it and for developing against it."""
