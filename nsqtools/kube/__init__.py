"""The calls of the chart's pods to the Kubernetes API. Nothing else in the project uses that API."""
