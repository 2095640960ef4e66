"""Options of a write: every mistake is one sentence that names the option."""

import pytest

from pyspark_nsq.sink.options import NAMES, SinkOptions
from pyspark_nsq.source.errors import OptionError

LEAST = {"nsqdHttpAddresses": "n:4151", "topic": "orders"}


def test_required_options_suffice():
    options = SinkOptions.parse(LEAST)

    assert (options.topic, options.nsqd_http_addresses) == ("orders", ("n:4151",))
    assert (options.max_batch_bytes, options.retry_s, options.for_nodes().retry_s) == (1 << 20, 30.0, 30.0)


def test_options_that_are_sparks_own_are_passed_over():
    assert SinkOptions.parse({**LEAST, "checkpointLocation": "x", "path": ""}) == SinkOptions.parse(LEAST)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"topic": "no spaces"}, "option topic is 'no spaces', which is not a valid topic name"),
        ({"lookupdHttpAddresses": "l:4161"}, "exactly one of the options lookupdHttpAddresses and nsqd"),
        ({"channel": "c"}, "option channel is not known; there are: lookupdHttpAddresses"),
        ({"maxBatchBytes": "0"}, "option maxBatchBytes is '0'; it must be a whole number above 0"),
    ],
)
def test_mistake_is_named(changes, sentence):
    with pytest.raises(OptionError, match=sentence):
        SinkOptions.parse({**LEAST, **changes})


def test_every_option_is_described_in_documentation(pytestconfig):
    page = (pytestconfig.rootpath / "docs/spark-reference.md").read_text()

    assert [name for name in NAMES if f"`{name}`" not in page] == []
