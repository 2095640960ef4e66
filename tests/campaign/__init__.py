"""The proof of the storage: random work on a simulated disk, stopped at every point, against a model."""
