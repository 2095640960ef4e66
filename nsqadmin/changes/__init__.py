"""What admins do to the cluster, and whom nsqadmin tells about it."""
