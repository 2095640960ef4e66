"""The state of the cluster: requested in the background, stored with its time, served from memory."""
