"""Tests of the storage: random work on a simulated disk, stopped at every point and checked with a model."""
