"""Names of columns that more than one side needs, with or without Spark and Arrow."""

from typing import Final

HEADERS: Final = "headers"
