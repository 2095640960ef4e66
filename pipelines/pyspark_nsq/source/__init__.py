"""The Spark data source "nsq": reads topics as logs."""
