#!/usr/bin/env python3
"""Write docs/reference from the code: flags, metrics, HTTP, errors, environment; --check only compares."""

import argparse
import ast
import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import devcluster.cli
import nsqadmin.openapi
import nsqd.data.cli
import nsqd.data.dump
import nsqd.drain
import nsqd.server.http.openapi
import nsqlookupd.openapi
from nsqadmin.api.metrics import AdminCollector
from nsqadmin.options import NsqadminOptions
from nsqclient.wire import errors
from nsqcore.http.metrics import BUILD_MEANING
from nsqcore.options.options import CommandOptions, DaemonOptions, OptionSpec, specs
from nsqd.engine.age import Ages
from nsqd.options import NsqdOptions
from nsqd.server.allocator import SOMEBODYS
from nsqd.server.statistics.metrics import NsqdCollector
from nsqlookupd.metrics import NsqlookupdCollector
from nsqlookupd.options import NsqlookupdOptions
from nsqtools.nsq_channel.options import ACTIONS as CHANNEL_ACTIONS
from nsqtools.nsq_peek.options import PeekOptions
from nsqtools.nsq_stat.options import StatOptions
from nsqtools.nsq_tail.options import TailOptions
from nsqtools.nsq_to_file.options import ToFileOptions
from nsqtools.nsq_to_http.options import ToHttpOptions
from nsqtools.nsq_to_nsq.options import ToNsqdOptions
from nsqtools.to_nsq.options import ToNsqOptions

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "docs" / "reference"
ALERTS: Final = ROOT / "deploy" / "helm" / "nsq" / "files" / "alerts.yaml"
# The part of a page above this line is written by hand.
WRITTEN: Final = "<!-- from here on written by scripts/reference.py -->"

DAEMONS: Final[dict[str, type[CommandOptions]]] = {
    "nsqd": NsqdOptions,
    "nsqlookupd": NsqlookupdOptions,
    "nsqadmin": NsqadminOptions,
}
TOOLS: Final[dict[str, type[CommandOptions]]] = {
    **{f"nsq_channel {action}": options for action, options in CHANNEL_ACTIONS.items()},
    "nsq_peek": PeekOptions,
    "nsq_stat": StatOptions,
    "nsq_tail": TailOptions,
    "nsq_to_file": ToFileOptions,
    "nsq_to_http": ToHttpOptions,
    "nsq_to_nsq": ToNsqdOptions,
    "to_nsq": ToNsqOptions,
}
OWN: Final[dict[str, Callable[[], argparse.ArgumentParser]]] = {
    "nsqd-drain": nsqd.drain.argument_parser,
    "nsqd-data": nsqd.data.cli.argument_parser,
    "nsq-cluster": devcluster.cli.argument_parser,
}


def cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;").replace("\n", " ")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


# -- flags ---------------------------------------------------------------------


def default_of(options: type[CommandOptions], spec: OptionSpec) -> str:
    fields = {field.name: field for field in dataclasses.fields(options)}
    if fields[spec.field].default_factory is not dataclasses.MISSING:
        return "from the host name"
    return "" if spec.default in {"", ()} else f"`{spec.kind.default_text(spec.default)}`"


def option_rows(options: type[CommandOptions]) -> Iterator[Sequence[str]]:
    for spec in sorted(specs(options), key=lambda spec: spec.flag):
        kind = spec.kind.word or "true or false"
        row = [f"`--{spec.flag}`", kind, cell(default_of(options, spec)), cell(spec.help)]
        if issubclass(options, DaemonOptions):
            row.append(f"`{spec.key}`" if spec.key else "")
        yield row


def argument_rows(parser: argparse.ArgumentParser) -> Iterator[Sequence[str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings)
        kind = "true or false" if action.nargs == 0 else str(action.metavar or "value")
        yield names, kind, cell(shown_default(action)), cell(action.help or "")


def shown_default(action: argparse.Action) -> str:
    if action.required:
        return "must be given"
    if action.nargs == 0 or action.default in (None, "", [], argparse.SUPPRESS, nsqd.data.dump.ALL):
        return ""
    if isinstance(action.default, int) and action.metavar == "DURATION":
        return f"`{action.default // 10**9}s`"
    return f"`{action.default}`"


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a program by name: its own, and one for each of its commands."""
    found = {parser.prog: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {f"{parser.prog} {name}": made for name, made in action.choices.items()}
    return found


def flags_page() -> Iterator[str]:
    heads = ["flag", "type", "default", "meaning"]
    for program, options in (DAEMONS | TOOLS).items():
        yield f"## {program}\n"
        yield from table([*heads, "TOML key"] if program in DAEMONS else heads, option_rows(options))
    for make in OWN.values():
        for name, parser in commands_of(make()).items():
            yield f"## {name}\n"
            yield from table(heads, argument_rows(parser))


# -- metrics -------------------------------------------------------------------

# Stand-ins for the collectors' inputs, one of each kind, so that every family and label appears.
_ONE: Final = SimpleNamespace(kind="", topic="", channel="", node="")
_BROKER: Final = SimpleNamespace(
    topics={}, stalled=(), leaving=False, disk_low=False, limits=SimpleNamespace(topology_aware=True)
)


def nsqd_families() -> Iterator[Sequence[str]]:
    made: Any = NsqdCollector(
        SimpleNamespace(
            broker=_BROKER,
            clients=SimpleNamespace(connections=(), accepted=0),
            health=SimpleNamespace(ok=True, failed_fsyncs={}),
            fsync=SimpleNamespace(count=0, seconds=0),
            ages=Ages(),
            watermark=SimpleNamespace(free=0, total=0),
            replication=SimpleNamespace(
                to_json=lambda: {"replicas": [], "copies": []},
                primary=SimpleNamespace(under_replicated=int),
                node=None,
            ),
        ),
        SimpleNamespace(lag_s=0),
        SimpleNamespace(peers=tuple),
        SimpleNamespace(remaining=int),
    )
    for one in made.families():
        yield one.name + "_total" * one.counter, kind_of(one.counter), ", ".join(one.labels), one.help


def library_families(collector: Any) -> Iterator[Sequence[str]]:
    for one in collector.collect():
        counter = one.type == "counter"
        labels = {label for sample in one.samples for label in sample.labels}
        yield one.name + "_total" * counter, kind_of(counter), ", ".join(sorted(labels)), one.documentation


def kind_of(counter: bool) -> str:
    return "counter" if counter else "gauge"


def families() -> dict[str, Iterable[Sequence[str]]]:
    counts = dict.fromkeys(("unavailable", "peers", "topics", "channels", "registrations"), 0)
    lookup: Any = (
        SimpleNamespace(counts=lambda: counts),
        SimpleNamespace(ready=True),
        _Sized(commands_total=0, errors_total=0),
    )
    admin: Any = (
        SimpleNamespace(answered=0, refused=0, unreachable=0),
        SimpleNamespace(counts={"": 0}),
        SimpleNamespace(now=[_ONE], muted_until=bool),
    )
    return {
        "nsqd": nsqd_families(),
        "nsqlookupd": library_families(NsqlookupdCollector(*lookup)),
        "nsqadmin": library_families(AdminCollector(*admin)),
    }


class _Sized(SimpleNamespace):
    def __len__(self) -> int:
        return 0


def alerts_on(text: str) -> dict[str, list[str]]:
    """Return for each metric the alerts whose rule names it."""
    found: dict[str, list[str]] = {}
    for block in text.split("- alert: ")[1:]:
        name, _, rule = block.partition("\n")
        for metric in sorted(set(re.findall(r"\bnsq(?:d|lookupd|admin)_\w+", rule.split("annotations:")[0]))):
            found.setdefault(metric, []).append(name.strip())
    return found


def metrics_page() -> Iterator[str]:
    alerts = alerts_on(ALERTS.read_text(encoding="utf-8"))
    for program, found in families().items():
        build = (f"{program}_build_info", "gauge", "build, nsq, version", BUILD_MEANING)
        yield f"## {program}\n"
        yield from table(
            ["name", "type", "labels", "meaning", "alerts"],
            (
                [f"`{name}`", kind, labels, cell(meaning), ", ".join(alerts.get(name, []))]
                for name, kind, labels, meaning in [*found, build]
            ),
        )


# -- errors --------------------------------------------------------------------

# The reasons that stand behind `PUB failed`, `MPUB failed` and `DPUB failed`.
NOT_STORED: Final = (
    "`draining`: the node is being emptied; publish to another. `topic is full`: the backlog of a "
    "channel is at its bound; wait, or consume. `disk is nearly full`: less is free than `--disk-watermark`. "
    "`0 of 1 replicas are in sync`: `--replicas-missing=refuse`. `exiting`: the topic was deleted. "
    "Any other reason is the error of the disk, which `/ping` and the log name as well."
)
# Code -> what to do about it; the catalogue and this table must have the same codes.
CURES: Final = {
    "E_BAD_PROTOCOL": (
        "The first four bytes were not `  V2` (nsqd) or `  V1` (nsqlookupd). Is it the right port? "
        "4150 and 4160 are TCP, 4151 and 4161 HTTP."
    ),
    "E_INVALID": (
        "The command is unknown, has the wrong number of parameters, or comes at the wrong time "
        "(`SUB` twice, `FIN` before `SUB`). It is a fault of the client library: report it there."
    ),
    "E_BAD_BODY": "The body's size is wrong, above `--max-body-size`, or not what the command expects.",
    "E_BAD_TOPIC": "Names have 1 to 64 of `.a-zA-Z0-9_-`, and `#ephemeral` at the end if wanted.",
    "E_BAD_CHANNEL": "Names have 1 to 64 of `.a-zA-Z0-9_-`, and `#ephemeral` at the end if wanted.",
    "E_BAD_MESSAGE": (
        "The message is empty or above `--max-msg-size`: raise that, or send a reference to the data instead."
    ),
    "E_INVALID_JSON_HEADER": (
        "Headers of a message are a JSON object whose values are strings, of 65,535 bytes at most."
    ),
    "E_IDENTIFY_FAILED": "What the client asked for in `IDENTIFY` cannot be had; the sentence names it.",
    "E_AUTH_DISABLED": "The client sent `AUTH` to an nsqd that runs without `--auth-http-address`.",
    "E_AUTH_FAILED": "The auth server refused the secret or did not answer; nsqd's log says which.",
    "E_AUTH_FIRST": "The nsqd asks for `AUTH`: give the client its secret.",
    "E_UNAUTHORIZED": (
        "The secret does not grant this topic and channel: change the answer of the auth server."
    ),
    "E_SUB_FAILED": (
        "`--max-channel-consumers` is reached, the channel cannot be made, or the node is decommissioned; "
        "the sentence says which. nsqlookupd names the nodes to read from."
    ),
    "E_PUB_FAILED": f"The message was not confirmed. {NOT_STORED}",
    "E_MPUB_FAILED": (
        f"The messages were not confirmed; of a batch of more than 4,096 some may be stored. {NOT_STORED}"
    ),
    "E_DPUB_FAILED": f"The message was not confirmed. {NOT_STORED}",
    "E_FIN_FAILED": (
        "The message is not in flight to this client any more: it timed out. Raise the timeout, or "
        "send `TOUCH`."
    ),
    "E_REQ_FAILED": (
        "The message is not in flight to this client any more: it timed out and is delivered again by itself."
    ),
    "E_TOUCH_FAILED": (
        "The message is not in flight to this client any more: touch earlier than the timeout."
    ),
}


def sentences() -> dict[str, set[str]]:
    """Return for each code the sentences with which the daemons send it."""
    found: dict[str, set[str]] = {code: set() for code in codes()}
    for package in ("nsqd", "nsqlookupd", "nsqcore", "client/nsqclient/wire"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "ProtocolError" and node.args:
                    code = ast.unparse(node.args[0])
                    sentence = text_of(node.args[1]) if len(node.args) > 1 else ""
                    if code in found and sentence:
                        found[code].add(sentence)
    return found


def text_of(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(one.value if isinstance(one, ast.Constant) else "..." for one in node.values)
    return ""


def codes() -> list[str]:
    return [name for name in vars(errors) if name.startswith("E_")]


def errors_page() -> Iterator[str]:
    """Yield a row for each sentence; the first of a code says what to do."""
    found = sentences()
    rows = []
    for code in codes():
        first, *others = sorted(found[code]) or [""]
        rows.append([f"`{code}`", cell(first), CURES[code]])
        rows += [["", cell(one), ""] for one in others]
    yield from table(["code", "sentence", "what to do"], rows)


# -- HTTP ----------------------------------------------------------------------

METHODS: Final = {"get": "GET", "post": "POST", "put": "PUT", "delete": "DELETE"}


def http_page(description: dict[str, Any]) -> Iterator[str]:
    """Yield the routes of a daemon by subject, as its /openapi.json describes them."""
    routes: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    arguments: dict[str, tuple[dict[str, Any], str]] = {}
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            routes.setdefault(operation["tags"][0], []).append((f"{METHODS[method]} {path}", operation))
            arguments |= {one["name"]: (one["schema"], one["description"]) for one in operation["parameters"]}
            for _, schema in bodies_of(operation):
                arguments |= {
                    name: (one, one["description"]) for name, one in schema.get("properties", {}).items()
                }
    rows = {tag: [route_row(*one) for one in found] for tag, found in routes.items()}
    heads = ["request", "does", "arguments", "body", "answer", "refused with"]
    # nsqlookupd wants no bodies.
    used = [
        place for place in range(len(heads)) if any(row[place] for found in rows.values() for row in found)
    ]
    for tag, found in rows.items():
        yield f"## {tag.capitalize()}\n"
        yield from table([heads[place] for place in used], ([row[place] for place in used] for row in found))
    yield "## Arguments\n"
    yield from table(
        ["argument", "type", "meaning"],
        (
            [f"`{name}`", cell(values_of(schema)), cell(meaning)]
            for name, (schema, meaning) in sorted(arguments.items())
        ),
    )


def bodies_of(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the media types of a request's body, each with its schema."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield kind, content["schema"]


def route_row(request: str, operation: dict[str, Any]) -> Sequence[str]:
    responses = operation["responses"]
    refusals = {status: one.get("x-codes", ()) for status, one in responses.items() if status != "200"}
    return (
        f"`{request}`",
        cell(operation["summary"]),
        ", ".join(shown_name(one["name"], one["required"]) for one in operation["parameters"]),
        ", ".join(shown_body(kind, schema) for kind, schema in bodies_of(operation)),
        ", ".join(f"`{kind}`" for kind in responses["200"].get("content", {})),
        ("; " if any(refusals.values()) else ", ").join(
            " ".join([status, ", ".join(f"`{code}`" for code in codes)]).strip()
            for status, codes in refusals.items()
        ),
    )


def shown_name(name: str, required: bool) -> str:
    return f"**`{name}`**" if required else f"`{name}`"


def shown_body(kind: str, schema: dict[str, Any]) -> str:
    members = [shown_name(name, name in schema["required"]) for name in schema.get("properties", ())]
    return f"`{kind}`" + (f": {', '.join(members)}" if members else "")


def values_of(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None:
        return f"{schema['type']}, {low} to {high}"
    return str(schema["type"]) if not low else f"{schema['type']}, {low} or more"


# -- environment ---------------------------------------------------------------

GLIBCS: Final = (
    "read by the C library (glibc): how much freed memory a process keeps. When it is set, nsqd changes "
    "nothing about that; otherwise nsqd keeps up to 128 MiB for the next reads"
)
# Variable -> what it is for; every variable that the code names must be here.
VARIABLES: Final = {
    "LOG4J_CONFIGURATION_FILE": (
        "the file by which Spark's Java logs; the jobs set it to one that logs nothing when it is not set"
    ),
    "MALLOC_TRIM_THRESHOLD_": GLIBCS,
    "MALLOC_MMAP_THRESHOLD_": GLIBCS,
    "MALLOC_TOP_PAD_": GLIBCS,
    "GLIBC_TUNABLES": GLIBCS,
    "NSQD_COMPILE": (
        "`1` while `pip install .` runs compiles nsqd's hot path to C (`setup.py`); anything else "
        "leaves it Python"
    ),
    "NSQD_COMPILE_LEVEL": (
        "how much the C compiler optimises then, `0` to `3`; `3` when it is not set. With `0` it takes "
        "two thirds of the time, and nsqd is slower"
    ),
    "POD_NAME": "the pod that the chart's hook before a stop drains (`nsqtools.kube.drain_hook`)",
    "POD_NAMESPACE": "its namespace; without these two the hook hands nothing over and writes no event",
    "PYSPARK_PYTHON": (
        "the Python that Spark starts its workers with; the jobs set it to their own when it is not set"
    ),
    "PYSPARK_GATEWAY_PORT": "set by `spark-submit`: the job uses that Java and starts none",
    "SPARK_HOME": "where Spark is, if not where pip put it: its Python processes are then started as usual",
}
_READS: Final = re.compile(
    r"environ(?:\.get|\.setdefault)?[(\[]\s*\"(\w+)\"|\"(\w+)\"(?: not)? in os\.environ"
)


def variables_read() -> set[str]:
    """Return the environment variables that the distributions and setup.py read."""
    found: set[str] = set(SOMEBODYS)
    packages = ("nsqd", "nsqlookupd", "nsqadmin", "nsqtools", "nsqcore", "devcluster", "client", "pipelines")
    files = [ROOT / "setup.py", *(path for package in packages for path in (ROOT / package).rglob("*.py"))]
    for path in files:
        for match in _READS.finditer(path.read_text(encoding="utf-8")):
            found.add(match[1] or match[2])
    return found


def environment_page() -> Iterator[str]:
    names = sorted(variables_read())
    yield from table(["variable", "meaning"], ([f"`{name}`", VARIABLES[name]] for name in names))


PAGES: Final[dict[str, Callable[[], Iterable[str]]]] = {
    "flags.md": flags_page,
    "metrics.md": metrics_page,
    "http.md": lambda: http_page(nsqd.server.http.openapi.description()),
    "http-nsqlookupd.md": lambda: http_page(nsqlookupd.openapi.description()),
    "http-nsqadmin.md": lambda: http_page(nsqadmin.openapi.description()),
    "errors.md": errors_page,
    "environment.md": environment_page,
}


def page(name: str) -> str:
    """Return the page with everything below the line written again."""
    above = (FOLDER / name).read_text(encoding="utf-8").partition(WRITTEN)[0]
    return above + "\n".join([WRITTEN, "", *PAGES[name]()]).rstrip("\n") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("; ", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args().check
    old = []
    for name in PAGES:
        path, wanted = FOLDER / name, page(name)
        if not check:
            path.write_text(wanted, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != wanted:
            old.append(name)
    if old:
        print(f"not what scripts/reference.py writes: {', '.join(old)}", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
