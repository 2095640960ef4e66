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


def test_required_flags_make_stream():
    options = parse(LEAST)

    assert SourceOptions.parse(options.source).for_stream().topic == "orders"
    assert (options.output, options.checkpoint) == ("out", "cp")
    assert options.trigger == {"processingTime": "10 seconds"}


def test_available_now_is_trigger():
    assert parse([*LEAST, "--available-now"]).trigger == {"availableNow": True}


@pytest.mark.parametrize(
    "text", ["10 seconds", "1 minute", "interval 2 hours", "1 hour 30 minutes", "5 SECONDS"]
)
def test_interval_of_spark_is_trigger(text):
    assert parse([*LEAST, f"--trigger= {text} "]).trigger == {"processingTime": text}


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
        *(
            ([f"--trigger={text}"], f"{text!r} is no interval such as '10 seconds' or '1 minute'")
            for text in ("soon", "10", "10s", "seconds", "", "1 fortnight")
        ),
        (["--available-now", "--trigger=1 minute"], "not allowed with"),
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
