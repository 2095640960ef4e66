"""Whole nodes on simulated disks and a simulated network: the campaign of replication."""
