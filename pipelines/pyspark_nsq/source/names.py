"""Names of columns for several modules, with or without Spark and Arrow."""

from typing import Final

HEADERS: Final = "headers"
# Columns with the day and the hour of the timestamp, on request.
DATE: Final = "date"
HOUR: Final = "hour"
