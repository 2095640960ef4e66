"""NSQ as the broker of frameworks for tasks and messages; each needs an extra of this package."""
