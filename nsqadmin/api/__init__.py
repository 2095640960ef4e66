"""Routes for programs: the JSON API, /config, Graphite, metrics."""
