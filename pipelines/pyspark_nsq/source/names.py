"""Names of columns that more than one side needs, with or without Spark and Arrow."""

from typing import Final

HEADERS: Final = "headers"
# Columns with the day and the hour of the timestamp, for who asks for them.
DATE: Final = "date"
HOUR: Final = "hour"
