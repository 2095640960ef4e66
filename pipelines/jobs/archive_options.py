"""The command line of ``nsq-archive``, read before Spark is started."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nsqcore.service.arguments import ArgumentParser
from pipelines.source.errors import OptionError
from pipelines.source.options import SourceOptions, StartingOffsets

PROGRAM: Final = "nsq-archive"
WRITERS: Final = ("python", "spark")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    source: dict[str, str]
    output: str
    writer: str
    checkpoint: str
    trigger: dict[str, Any]
    master: str
    conf: dict[str, str]


def parse(argv: Sequence[str]) -> Options:
    """Read the command line; ends the program with code 2 and one sentence when it cannot be used."""
    parser = ArgumentParser(
        prog=PROGRAM,
        description="Write a topic to Parquet files by date and hour of publishing, every message once.",
    )
    add = parser.add_argument
    add("--lookupd-http-address", action="append", default=[], metavar="HOST:PORT", help="may be repeated")
    add("--nsqd-http-address", action="append", default=[], metavar="HOST:PORT", help="instead of nsqlookupd")
    add("--topic", required=True)
    add("--channel", required=True, help="acknowledges what is stored; no other consumer may use it")
    add("--output", required=True, metavar="FOLDER", help="where the Parquet files go")
    add(
        "--writer",
        choices=WRITERS,
        default=WRITERS[0],
        help="python (default): fast, whole files only, to a folder that all executors see; "
        "spark: to wherever Spark can write, for readers that are Spark",
    )
    add(
        "--checkpoint",
        required=True,
        metavar="FOLDER",
        help="where Spark notes how far it is; belongs to --output",
    )
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--available-now", action="store_true", help="archive what is there now, then end")
    when.add_argument("--trigger", default="10 seconds", metavar="INTERVAL", help="default: %(default)s")
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
        help="pieces a batch is cut into, default one for each nsqd",
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
    add("--tls-root-ca-file", default="", metavar="FILE", help="whom to trust, where nsqd insists on HTTPS")
    add(
        "--forget-nsqd",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="it is gone for good; once is enough",
    )
    add("--master", default="", metavar="URL", help="Spark's master; default: spark-submit's, or local[*]")
    add(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark, may be repeated"
    )
    given = parser.parse_args(argv)
    source = {
        "lookupd_http_addresses": ",".join(given.lookupd_http_address),
        "nsqd_http_addresses": ",".join(given.nsqd_http_address),
        "topic": given.topic,
        "channel": given.channel,
        "startingOffsets": given.starting_offsets,
        "maxOffsetsPerTrigger": given.max_offsets_per_trigger,
        "minPartitions": given.min_partitions,
        "failOnDataLoss": str(given.fail_on_data_loss).lower(),
        "retrySeconds": given.retry_seconds,
        "authSecretFile": given.auth_secret_file,
        "tlsRootCaFile": given.tls_root_ca_file,
        "forgetNsqds": ",".join(given.forget_nsqd),
    }
    try:
        SourceOptions.parse(source).for_stream()
    except OptionError as error:
        parser.error(str(error))
    if given.writer == "python" and "://" in given.output:
        parser.error(f"--output={given.output} is no folder of this machine; it needs --writer=spark")
    conf: dict[str, str] = {}
    for setting in given.conf:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            parser.error(f"--conf must be KEY=VALUE, not {setting!r}")
        conf[key] = value
    return Options(
        source=source,
        output=given.output,
        writer=given.writer,
        checkpoint=given.checkpoint,
        trigger={"availableNow": True} if given.available_now else {"processingTime": given.trigger},
        master=given.master,
        conf=conf,
    )
