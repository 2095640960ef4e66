"""Flags that several jobs have."""

import argparse

import pytest

from pyspark_nsq.jobs.arguments import interval


@pytest.mark.parametrize(
    "text", ["10 seconds", "1 minute", "interval 2 hours", "1 hour 30 minutes", "5 SECONDS"]
)
def test_interval_is_one_that_spark_reads(text):
    assert interval(f" {text} ") == text


@pytest.mark.parametrize("text", ["soon", "10", "10s", "seconds", "", "1 fortnight"])
def test_invalid_interval_is_named(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no interval such as '10 seconds'"):
        interval(text)
