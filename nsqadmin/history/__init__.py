"""The last hour and day of the cluster, in a file of fixed size."""
