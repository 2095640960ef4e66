"""Parquet files that the Python workers write themselves, one for each range of a log and hour."""
