"""The whole cluster on one machine, for trying it out and for developing against it."""
