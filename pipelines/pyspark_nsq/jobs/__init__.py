"""The jobs: each has a short main of options, source, transforms and sink."""
