"""What the chart's pods ask the Kubernetes API. Nothing else in the project speaks to it."""
