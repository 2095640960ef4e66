"""The Spark data source "nsq": topics read as the logs they are."""
