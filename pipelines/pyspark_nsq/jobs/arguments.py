"""The command lines of the jobs: one sentence for a mistake, and flags that several jobs share."""

import argparse
import re
from difflib import get_close_matches
from typing import Final, NoReturn

from pyspark_nsq.source.errors import OptionError
from pyspark_nsq.source.options import SourceOptions, StartingOffsets

_UNKNOWN: Final = re.compile(r"unrecognized arguments: (--?[\w-]+)")
_UNITS: Final = r"(?:microsecond|millisecond|second|minute|hour|day|week)s?"
_INTERVAL: Final = re.compile(rf"(?:interval\s+)?\d+\s+{_UNITS}(?:\s+\d+\s+{_UNITS})*", re.IGNORECASE)


class JobArguments(argparse.ArgumentParser):
    """Reports a mistake in one sentence, without a page of usage, and exits with code 2."""

    def error(self, message: str) -> NoReturn:
        if match := _UNKNOWN.match(message):
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = get_close_matches(match[1], flags, 1, 0.8)
            message += f"; is {near[0]} meant?" if near else ""
        end = "" if message.endswith("?") else ";"
        self.exit(2, f"{self.prog}: {message}{end} {self.prog} --help lists all flags\n")


def interval(text: str) -> str:
    """The ``type`` of an argument such as ``10 seconds``, in Spark's form. Raises ArgumentTypeError."""
    if not _INTERVAL.fullmatch(text.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is no interval such as '10 seconds' or '1 minute'")
    return text.strip()


def add_source(parser: JobArguments, channel_help: str) -> None:
    """Add the flags of the source."""
    add = parser.add_argument
    add("--lookupd-http-address", action="append", default=[], metavar="HOST:PORT", help="may be repeated")
    add("--nsqd-http-address", action="append", default=[], metavar="HOST:PORT", help="instead of nsqlookupd")
    add("--topic", required=True)
    add("--channel", required=True, help=channel_help)
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--available-now", action="store_true", help="take what is there now, then end")
    when.add_argument(
        "--trigger", type=interval, default="10 seconds", metavar="INTERVAL", help="default: %(default)s"
    )
    add("--starting-offsets", default="", help="|".join(member.value for member in StartingOffsets))
    add(
        "--max-offsets-per-trigger",
        default="2000000",
        metavar="N",
        help="messages of one batch, default %(default)s",
    )
    add(
        "--min-partitions",
        default="",
        metavar="N",
        help="pieces a batch is cut into, default one for each core of the cluster",
    )
    add(
        "--fail-on-data-loss",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="end when an nsqd or some of its messages are gone",
    )
    add("--retry-seconds", default="", metavar="N", help="how long an nsqd may be away, default 10")
    add(
        "--auth-secret-file",
        default="",
        metavar="FILE",
        help="with the AUTH secret, for nsqd with --http-auth; every executor reads it",
    )
    add(
        "--auth-allow-cleartext",
        action="store_true",
        help="send the AUTH secret without TLS also to nsqds that nsqlookupd named",
    )
    add("--tls-root-ca-file", default="", metavar="FILE", help="whom to trust, where nsqd insists on HTTPS")
    add(
        "--forget-nsqd",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="it will not come back; one run is enough",
    )


def add_spark(parser: JobArguments) -> None:
    """Add the flags of Spark."""
    add = parser.add_argument
    add("--master", default="", metavar="URL", help="Spark's master; default: spark-submit's, or local[*]")
    add(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark, may be repeated"
    )


def source_of(parser: JobArguments, given: argparse.Namespace) -> dict[str, str]:
    """Return the options of the data source. Ends the program if they are invalid."""
    source = {
        "lookupdHttpAddresses": ",".join(given.lookupd_http_address),
        "nsqdHttpAddresses": ",".join(given.nsqd_http_address),
        "topic": given.topic,
        "channel": given.channel,
        "startingOffsets": given.starting_offsets,
        "maxOffsetsPerTrigger": given.max_offsets_per_trigger,
        "minPartitions": given.min_partitions,
        "failOnDataLoss": str(given.fail_on_data_loss).lower(),
        "retryTimeout": given.retry_seconds,
        "authSecretFile": given.auth_secret_file,
        "authAllowCleartext": str(given.auth_allow_cleartext).lower(),
        "tlsRootCaFile": given.tls_root_ca_file,
        "forgetNsqds": ",".join(given.forget_nsqd),
    }
    try:
        parsed = SourceOptions.parse(source).for_stream()
    except OptionError as error:
        parser.error(error.sentence)
    if not parsed.topic:
        parser.error("--topic must be one topic")
    return source


def trigger_of(given: argparse.Namespace) -> dict[str, object]:
    return {"availableNow": True} if given.available_now else {"processingTime": given.trigger}


def conf_of(parser: JobArguments, given: argparse.Namespace) -> dict[str, str]:
    """Return the settings of Spark."""
    conf: dict[str, str] = {}
    for setting in given.conf:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            parser.error(f"--conf must be KEY=VALUE, not {setting!r}")
        conf[key] = value
    return conf
