"""Actions of admins on the cluster, their audit and their notifications."""
