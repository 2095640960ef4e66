"""Parquet files that the Python workers write themselves, one range of a log after another."""
