"""Who may see and change things, and from where."""
