"""NSQ for Spark: the data source "nsq", and jobs that use it.

from pipelines import register

register(spark)
messages = spark.readStream.format("nsq").options(topic="orders", channel="archive", ...).load()
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make the format "nsq" known to a session."""
    # Imported here, so that the pure parts of the package can be had without Spark.
    from pipelines.source.source import NsqDataSource

    spark.dataSource.register(NsqDataSource)
