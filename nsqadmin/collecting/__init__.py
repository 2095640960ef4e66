"""What the cluster says: asked in the background, kept with its time, answered from here."""
