"""What admins do to the cluster, and who is told of it."""
