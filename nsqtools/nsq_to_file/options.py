"""The options of nsq_to_file."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nsqclient.wire.durations import MINUTE, SECOND, Duration
from nsqclient.wire.names import is_valid_name
from nsqcore.options.kinds import BOOL, DURATION, INT, STR_LIST, Kind, RefusedError
from nsqcore.options.options import option
from nsqcore.patterns import search_for
from nsqcore.process.logs import LogLevel, parse_log_level, timestamp
from nsqtools.nsq_to_file.archive import ArchiveLayout
from nsqtools.nsq_to_file.names import Naming, host_text
from nsqtools.nsq_to_file.rotation import Rotation
from nsqtools.options import HTTP_TIMEOUTS, ConsumingOptions


def _log_level(word: str) -> LogLevel:
    try:
        return parse_log_level(word)
    except ValueError:
        raise RefusedError("--log-level is invalid") from None


_LOG_LEVEL: Final = Kind(
    "string", _log_level, _log_level, default_text=lambda level: f'"{level.name.lower()}"'
)


@dataclass(frozen=True, kw_only=True)
class ToFileOptions(ConsumingOptions):
    program = "nsq_to_file"

    log_level: LogLevel = option(
        LogLevel.INFO, kind=_LOG_LEVEL, help="set log verbosity: debug, info, warn, error, or fatal"
    )
    log_prefix: str = option("[nsq_to_file] ", help="log message prefix")
    topic: tuple[str, ...] = option((), kind=STR_LIST, help="nsq topic (may be given multiple times)")
    topic_pattern: str = option("", help="only log topics matching the following pattern")
    topic_refresh: Duration = option(
        MINUTE, kind=DURATION, help="how frequently the topic list should be refreshed"
    )
    channel: str = option("nsq_to_file", help="nsq channel")
    output_dir: str = option("/tmp", help="directory to write output files to")  # noqa: S108 - the original's
    work_dir: str = option("", help="directory for in-progress files before moving to output-dir")
    datetime_format: str = option(
        "%Y-%m-%d_%H", help="strftime compatible format for <DATETIME> in filename format"
    )
    filename_format: str = option(
        "<TOPIC>.<HOST><REV>.<DATETIME>.log",
        help="output filename format (<TOPIC>, <HOST>, <PID>, <DATETIME>, <REV> are replaced."
        " <REV> is increased when file already exists)",
    )
    host_identifier: str = option(
        "",
        help="value to output in log filename in place of hostname."
        " <SHORT_HOST> and <HOSTNAME> are valid replacement tokens",
    )
    gzip: bool = option(False, kind=BOOL, help="gzip output files.")
    gzip_level: int = option(6, kind=INT, help="gzip compression level (1-9, 1=BestSpeed, 9=BestCompression)")
    skip_empty_files: bool = option(False, kind=BOOL, help="skip writing empty files")
    rotate_size: int = option(0, kind=INT, help="rotate the file when it grows bigger than this many bytes")
    rotate_interval: Duration = option(0, kind=DURATION, help="rotate the file every duration")
    sync_interval: Duration = option(30 * SECOND, kind=DURATION, help="sync file to disk every duration")
    http_client_connect_timeout: Duration = option(2 * SECOND, kind=DURATION, help="timeout for HTTP connect")
    http_client_request_timeout: Duration = option(5 * SECOND, kind=DURATION, help="timeout for HTTP request")

    @staticmethod
    def stray(program: str, words: Sequence[str]) -> tuple[int, str]:  # noqa: ARG004 - the others name it
        return 1, f"{timestamp()[:19]} unknown arguments: [{' '.join(words)}]"

    @property
    def layout(self) -> ArchiveLayout:
        output = Path(self.output_dir).resolve()
        return ArchiveLayout(
            output_dir=output,
            work_dir=Path(self.work_dir).resolve() if self.work_dir else output,
            rotation=Rotation(self.rotate_size, self.rotate_interval),
            gzip_level=self.gzip_level if self.gzip else None,
            skip_empty=self.skip_empty_files,
        )

    @property
    def naming(self) -> Naming:
        layout = self.layout
        return Naming(
            filename_format=self.filename_format,
            datetime_format=self.datetime_format,
            host=host_text(self.host_identifier, socket.gethostname()),
            pid=os.getpid(),
            gzip=self.gzip,
            revisions=layout.moves or layout.exclusive or self.rotate_size > 0,
        )

    def problem(self) -> str | None:
        if not self.channel:
            return "--channel is required"
        if problem := self.number_problem(*HTTP_TIMEOUTS):
            return problem
        if problem := self.source_problem():
            # The original tool ends this one sentence with a full stop.
            return f"{problem}." if problem.endswith(" required") else problem
        if not 1 <= self.gzip_level <= 9:
            return f"invalid --gzip-level value ({self.gzip_level}), should be 1-9"
        if not self.topic and not self.topic_pattern:
            return "--topic or --topic-pattern required"
        if not self.topic and not self.lookupd_http_address:
            return "--lookupd-http-address must be specified when no --topic specified"
        return (
            self._topic_problem()
            or self._folder_problem()
            or self.naming.problem()
            or self.number_problem(
                "topic_refresh", "sync_interval", not_negative=("rotate_size", "rotate_interval")
            )
            or self.consumer_problem()
        )

    def _topic_problem(self) -> str | None:
        for topic in self.topic:
            if not is_valid_name(topic):
                return f"--topic {topic} is no valid topic name"
            if topic in {".", ".."}:
                return f"--topic {topic} cannot be part of a file name"
        if not is_valid_name(self.channel):
            return f"--channel {self.channel} is no valid channel name"
        try:
            search_for(self.topic_pattern)
        except ValueError as error:
            return f"--topic-pattern is no regular expression: {error}"
        return None

    def _folder_problem(self) -> str | None:
        for flag, folder in (("output-dir", self.output_dir), ("work-dir", self.work_dir)):
            try:
                Path(folder).resolve()
            except (OSError, RuntimeError) as error:  # symbolic links that lead in a circle
                return f"--{flag} cannot be used: {error}"
        return None
