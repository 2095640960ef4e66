"""Which people and programs may see and change things, and from which addresses."""
