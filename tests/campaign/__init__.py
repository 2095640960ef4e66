"""The proof of the storage: random work on a simulated disk, stopped anywhere, against a small model."""
