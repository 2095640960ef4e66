"""Ready-made middlewares; each needs an extra of this package."""
