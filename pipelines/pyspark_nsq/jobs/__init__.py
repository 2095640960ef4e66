"""Jobs: each a thin main of options, source, transforms and sink."""
