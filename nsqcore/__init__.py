"""What the three daemons, the pipelines and the tests share; imports no service."""
