"""Options declared once: a frozen dataclass whose fields know their flag, TOML key, kind and help.

    @dataclass(frozen=True, kw_only=True)
    class NsqdOptions(DaemonOptions):
        msg_timeout: Duration = option(60 * SECOND, kind=DURATION, help="time a consumer has to answer")

    options = parse(NsqdOptions, "nsqd", sys.argv[1:])

The flag is the field's name with dashes and the TOML key the field's name, unless the declaration differs.
A flag beats the file, the file beats the default. There are no environment variables.
"""

import dataclasses
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO, TypeVar

from nsqcore.near_misses import meant_name
from nsqcore.options.kinds import BOOL, LOG_LEVEL, STR, Kind, RefusedError, go_text, quoted
from nsqcore.process.logs import LogLevel, timestamp
from nsqcore.process.output import write_message, write_output
from nsqcore.version import banner

NO_KEY: Final = ""
"""A value of ``key=``: the option can only be given as a flag."""

_METADATA: Final = "option"

O = TypeVar("O", bound="CommandOptions")  # noqa: E741 - the one type this module is generic in


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One declared option, for the parser, the documentation and the tests of the chart."""

    field: str
    flag: str
    key: str
    kind: Kind
    help: str
    default: Any
    check: Callable[[Any], str | None] | None


def option(
    default: Any = None,
    *,
    factory: Callable[[], Any] | None = None,
    flag: str | None = None,
    key: str | None = None,
    kind: Kind = STR,
    help: str = "",  # noqa: A002 - the usual word for it
    check: Callable[[Any], str | None] | None = None,
) -> Any:
    """Declare a field of an options class.

    *factory* computes a default that depends on the machine; *check* returns a sentence for an invalid value.
    """
    metadata = {_METADATA: (flag, key, kind, help, check)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of every command, and the texts with which it refuses."""

    version: bool = option(False, key=NO_KEY, kind=BOOL, help="print version string")

    def problem(self) -> str | None:
        """Return one sentence when options contradict each other; overridden where that can happen."""
        return None

    @staticmethod
    def banner(program: str) -> str:
        """The text that ``-version`` prints."""
        return banner(program)

    @staticmethod
    def refusal(program: str, sentence: str) -> str:
        """The line that ends a start with values that cannot work."""
        return f"[{program}] {timestamp()} FATAL: failed to instantiate {program} - {sentence}"

    @staticmethod
    def stray(program: str, words: Sequence[str]) -> tuple[int, str]:
        """The exit code and the line for words that are no flags."""
        # The original ignores everything after such a word and runs with defaults.
        return 2, (
            f"unexpected argument {quoted(words[0])}: {program} takes flags only"
            " (a boolean flag takes its value after =)"
        )


@dataclass(frozen=True, kw_only=True)
class DaemonOptions(CommandOptions):
    """The options of every daemon."""

    config: str = option("", key=NO_KEY, help="path to config file")
    log_level: LogLevel = option(
        LogLevel.INFO, kind=LOG_LEVEL, help="set log verbosity: debug, info, warn, error, or fatal"
    )
    verbose: bool = option(False, key=NO_KEY, kind=BOOL, help="[deprecated] has no effect, use --log-level")


def specs(options_class: type[CommandOptions]) -> list[OptionSpec]:
    """List every option of a class, in the order of declaration."""
    found = []
    for field in dataclasses.fields(options_class):
        if _METADATA not in field.metadata:
            continue
        flag, key, kind, text, check = field.metadata[_METADATA]
        default = (
            field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        )
        found.append(
            OptionSpec(
                field=field.name,
                flag=field.name.replace("_", "-") if flag is None else flag,
                key=field.name if key is None else key,
                kind=kind,
                help=text,
                default=default,
                check=check,
            )
        )
    return found


def config_value(options: CommandOptions, key: str) -> object:
    """Return what ``GET /config/<key>`` answers (text is sent raw, all else as JSON); raises KeyError."""
    for spec in specs(type(options)):
        if spec.key == key and key != NO_KEY:
            return spec.kind.show(getattr(options, spec.field))
    raise KeyError(key)


def usage(options_class: type[CommandOptions], program: str) -> str:
    """Return the help text, flags in alphabetical order."""
    lines = [f"Usage of {program}:"]
    for spec in sorted(specs(options_class), key=lambda spec: spec.flag):
        lines.append(f"  -{spec.flag}" + (f" {spec.kind.word}" if spec.kind.word else ""))
        # As in the original, an empty, zero or false default is not shown.
        shown = f" (default {spec.kind.default_text(spec.default)})" if spec.default else ""
        lines.append(f"    \t{spec.help}{shown}")
    return "\n".join(lines) + "\n"


def parse(
    options_class: type[O],
    program: str,
    argv: Sequence[str],
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> O:
    """Return the options that *argv* (without the program's name) and its ``-config`` file give.

    Any mistake is written to *stderr* and ends the program with SystemExit: 2 for the command line, 1 for the
    file and for values that cannot work. Help and version end it with 0.
    """
    reader = _Reader(options_class, program, stdout or sys.stdout, stderr or sys.stderr)
    given = reader.flags(argv)
    if given.get("version"):
        write_output(f"{options_class.banner(program)}\n", reader.stdout)
        raise SystemExit(0)
    values = reader.file(given["config"]) if given.get("config") else {}
    values.update(given)
    options = options_class(**values)
    reader.check(options)
    return options


class _Reader:
    """Reads one command line; ends the program at a mistake."""

    def __init__(
        self, options_class: type[CommandOptions], program: str, stdout: TextIO, stderr: TextIO
    ) -> None:
        self.options_class = options_class
        self.program = program
        self.stdout = stdout
        self.stderr = stderr
        self.specs = specs(options_class)
        self.by_flag = {spec.flag: spec for spec in self.specs}

    # -- the command line ----------------------------------------------------

    def flags(self, argv: Sequence[str]) -> dict[str, Any]:
        """Return field -> value of the flags given. One dash or two, ``-x v`` or ``-x=v``."""
        given: dict[str, Any] = {}
        words = list(argv)
        while words:
            word = words.pop(0)
            if word == "--":
                break
            if len(word) < 2 or word[0] != "-":
                words.insert(0, word)
                break
            name, equals, text = (word[2:] if word[1] == "-" else word[1:]).partition("=")
            if not name or name[0] == "-":
                self.misused(f"bad flag syntax: {word}")
            spec = self.by_flag.get(name)
            if spec is None:
                if name in {"h", "help"}:
                    write_message(usage(self.options_class, self.program).removesuffix("\n"), self.stderr)
                    raise SystemExit(0)
                near = meant_name(name, self.by_flag)
                meant = f"; is -{near} meant?" if near else ""
                self.misused(f"flag provided but not defined: -{name}{meant}")
            if not equals:
                if spec.kind.boolean:
                    text = "true"
                elif words:
                    text = words.pop(0)
                else:
                    self.misused(f"flag needs an argument: -{name}")
            value = self.flag_value(spec, text)
            if spec.kind.listed:
                value = given.get(spec.field, ()) + value
            if spec.kind.descending:
                value = tuple(sorted(value, reverse=True))
            given[spec.field] = value
        if words:
            code, line = self.options_class.stray(self.program, words)
            write_message(f"{line}", self.stderr)
            raise SystemExit(code)
        return given

    def flag_value(self, spec: OptionSpec, text: str) -> Any:
        try:
            return spec.kind.from_flag(text)
        except RefusedError as refusal:
            self.plain(str(refusal))
        except ValueError as error:
            if spec.kind.boolean:
                self.misused(f"invalid boolean value {quoted(text)} for -{spec.flag}: {error}")
            self.misused(f"invalid value {quoted(text)} for flag -{spec.flag}: {error}")

    # -- the file --------------------------------------------------------------

    def file(self, path: str) -> dict[str, Any]:
        """Return field -> value of a TOML file; unknown keys get a warning."""
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
        except OSError as error:
            self.fatal(f"failed to load config file {path} - open {path}: {(error.strerror or '').lower()}")
        except ValueError as error:
            self.fatal(f"failed to load config file {path} - {error}")
        by_key = {spec.key: spec for spec in self.specs if spec.key != NO_KEY}
        for key in content:
            if key not in by_key:
                # Not refused: the original accepts unknown keys, so files with such keys exist.
                hint = _meant(key, self.by_flag, by_key)
                self.line(f"WARNING: config file {path}: the key {key} is not known and has no effect{hint}")
        present = [spec for key, spec in by_key.items() if key in content]
        values: dict[str, Any] = {}
        for spec in sorted(present, key=lambda spec: not spec.kind.fatal_in_file):
            found = content[spec.key]
            try:
                values[spec.field] = spec.kind.from_toml(found)
            except ValueError as error:
                if spec.kind.fatal_in_file:
                    self.fatal(f"failed parsing {spec.key} {go_text(found)}")
                shown = quoted(found) if isinstance(found, str) else go_text(found)
                self.fatal(f"failed to load config file {path} - {spec.key} = {shown}: {error}")
        return values

    # -- all of it -------------------------------------------------------------

    def check(self, options: CommandOptions) -> None:
        for spec in self.specs:
            sentence = spec.check(getattr(options, spec.field)) if spec.check else None
            if sentence:
                self.refuse(sentence)
        sentence = options.problem()
        if sentence:
            self.refuse(sentence)

    def misused(self, sentence: str) -> NoReturn:
        # The original prints the whole usage text after it, which scrolls the sentence off the screen.
        end = "" if sentence.endswith("?") else ";"
        write_message(f"{sentence}{end} {self.program} -help lists all flags", self.stderr)
        raise SystemExit(2)

    def plain(self, sentence: str) -> NoReturn:
        write_message(f"{timestamp()[:19]} {sentence}", self.stderr)
        raise SystemExit(1)

    def refuse(self, sentence: str) -> NoReturn:
        write_message(f"{self.options_class.refusal(self.program, sentence)}", self.stderr)
        raise SystemExit(1)

    def fatal(self, sentence: str) -> NoReturn:
        self.line(f"FATAL: {sentence}")
        raise SystemExit(1)

    def line(self, text: str) -> None:
        write_message(f"[{self.program}] {timestamp()} {text}", self.stderr)


def _meant(key: str, by_flag: Mapping[str, OptionSpec], by_key: Mapping[str, OptionSpec]) -> str:
    """A guess at what was meant by an unknown key; empty without a guess."""
    flag = by_flag.get(key.replace("_", "-"))
    if flag is not None:
        return f"; that of -{flag.flag} is {flag.key}" if flag.key != NO_KEY else ""
    near = meant_name(key, by_key)
    return f"; is {near} meant?" if near else ""
