"""Middlewares for what many programs need; each needs an extra of this package."""
