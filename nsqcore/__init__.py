"""Code shared by the three daemons, the pipelines and the tests; it imports no service."""
