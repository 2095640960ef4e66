"""The command line of nsq-archive, before Spark is started."""

import pytest

from pyspark_nsq.jobs.archive_options import parse
from pyspark_nsq.source.options import SourceOptions

LEAST = [
    "--lookupd-http-address=127.0.0.1:4161",
    "--topic=orders",
    "--channel=archive",
    "--output=out",
    "--checkpoint=cp",
]


def test_what_must_be_said_makes_stream():
    options = parse(LEAST)

    assert SourceOptions.parse(options.source).for_stream().topic == "orders"
    assert (options.output, options.checkpoint) == ("out", "cp")
    assert options.trigger == {"processingTime": "10 seconds"}


def test_available_now_and_interval_exclude_each_other(capsys):
    assert parse([*LEAST, "--available-now"]).trigger == {"availableNow": True}
    assert parse([*LEAST, "--trigger=1 minute"]).trigger == {"processingTime": "1 minute"}
    with pytest.raises(SystemExit):
        parse([*LEAST, "--available-now", "--trigger=1 minute"])
    assert "not allowed with" in capsys.readouterr().err


def test_settings_of_spark_may_contain_equals_sign():
    options = parse([*LEAST, "--conf=spark.x=a=b", "--conf=spark.y=c"])

    assert options.conf == {"spark.x": "a=b", "spark.y": "c"}


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--topic=no spaces"], "option topic is 'no spaces', which is not a valid topic name"),
        (
            ["--max-offsets-per-trigger=0"],
            "option maxOffsetsPerTrigger is '0'; it must be a whole number above 0",
        ),
        (
            ["--nsqd-http-address=a:1"],
            "exactly one of the options lookupdHttpAddresses and nsqdHttpAddresses",
        ),
        (["--channel="], "option channel is missing"),
        (["--channel=c#ephemeral"], "an ephemeral channel is gone when nsqd restarts"),
        (["--topic=a,b"], "--topic must be one topic"),
        (["--trigger=soon"], "'soon' is no interval such as '10 seconds' or '1 minute'"),
        (["--chanel=x"], "unrecognized arguments: --chanel=x; is --channel meant?"),
        (["--output=s3a://x/y"], "--output=s3a://x/y must be a folder or begin with s3://, gs://"),
        (["--table=delta", "--output=s3://x/y"], "--table=delta needs a folder of this machine"),
        (["--table=delta", "--by=date"], "and excludes --by"),
        (["--compact", "--available-now"], "--compact needs --table=delta"),
        (["--compact", "--table=delta"], "and --available-now"),
        (["--by=day"], "--by=day is not date, hour or NAME=$.MEMBER, such as city=$.address.city"),
        (["--by=x=$."], "--by=x=$. is not date, hour or NAME=$.MEMBER"),
        (["--conf=spark.ui.enabled"], "--conf must be KEY=VALUE, not 'spark.ui.enabled'"),
    ],
)
def test_mistake_is_named_before_spark_starts(flags, sentence, capsys):
    with pytest.raises(SystemExit) as caught:
        parse([*LEAST, *flags])

    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err
