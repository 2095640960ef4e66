"""Client libraries side by side on one nsqd: ``python -m bench.clients``."""
