"""The ``nsq-load`` command."""

import argparse
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from load.profile import Profile, ProfileError, parse_profile
from nsqcore.options.arguments import ArgumentParser
from nsqcore.process.output import write_message, write_output

HTTP_PORT: Final = 4161
MASTER_PORT: Final = 5557
# Number of nsqlookupd looked for in one release; no cluster has as many.
MAX_LOOKUPDS: Final = 9

# Takes and returns the same as socket.getaddrinfo.
LookUp = Callable[..., Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if the run reached all that its profile asks for, 1 if not, 2 for a wrong command line."""
    parser = argument_parser()
    options = parser.parse_args(argv)
    # SIGTERM ends a run as Ctrl-C does, so its daemons, processes and files are removed; and so does the end
    # of the terminal, unless nohup has asked for the opposite.
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _interrupt)
    _allow_many_descriptors()
    try:
        if options.command == "profiles":
            return _list_profiles()
        if options.command == "worker":
            return _work(options.master)
        return _run(options)
    except ProfileError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130


def argument_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="nsq-load", description="Put load on an NSQ cluster by a profile, and judge what came of it."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("profiles", help="list the profiles that come with it")
    worker = commands.add_parser("worker", help="be a worker of a run on another machine")
    worker.add_argument("--master", required=True, metavar="HOST[:PORT]", help="where that run listens")
    one = commands.add_parser("run", help="run a profile")
    one.add_argument("profile", help="name of a profile that comes with it, or a TOML file")
    where = one.add_mutually_exclusive_group(required=True)
    where.add_argument("--start", action="store_true", help="start a cluster of its own on this machine")
    where.add_argument(
        "--attach", metavar="LOOKUPD", action="append", help="HTTP address of an nsqlookupd; may be repeated"
    )
    where.add_argument("--helm", metavar="RELEASE", help="a release of the chart, from a pod of its cluster")
    one.add_argument("--namespace", default="", help="of the release (default: that of the pod)")
    one.add_argument("--cluster-domain", default="cluster.local", help="of the Kubernetes cluster")
    one.add_argument(
        "--nsqadmin", metavar="ADDRESS", action="append", default=[], help="for profiles with browsers"
    )
    one.add_argument("--seconds", type=float, help="instead of what the profile says")
    one.add_argument("--times", type=float, default=1.0, help="multiplies every rate of publishers")
    one.add_argument(
        "--topic", help="publish there; without it the topic is this run's own and deleted after it"
    )
    one.add_argument(
        "--kill", action="store_true", help="with --start: kill an nsqd in the middle of the load"
    )
    one.add_argument(
        "--nsqd-flag", action="append", default=[], metavar="FLAG", help="with --start: for every nsqd"
    )
    one.add_argument("--workers", type=int, default=0, help="processes of Locust on this machine")
    one.add_argument("--other-workers", type=int, default=0, help="wait for so many from other machines")
    one.add_argument("--bind", default="127.0.0.1:0", metavar="HOST:PORT", help="where workers find this run")
    one.add_argument(
        "--ui", type=int, nargs="?", const=8089, metavar="PORT", help="serve Locust's page (8089)"
    )
    one.add_argument(
        "--report", type=Path, metavar="FOLDER", help="write report.html, report.json, report.csv"
    )
    one.add_argument("--keep", action="store_true", help="keep journal, logs and data, and the topic")
    one.add_argument("--tls", action="store_true", help="speak TLS to nsqd")
    one.add_argument("--tls-root-ca-file", metavar="FILE")
    one.add_argument("--tls-insecure-skip-verify", action="store_true")
    one.add_argument("--tls-cert", metavar="FILE")
    one.add_argument("--tls-key", metavar="FILE")
    one.add_argument("--auth-secret-file", default="", metavar="FILE", help="the secret for AUTH")
    one.add_argument("--auth-allow-cleartext", action="store_true", help="send the secret also without TLS")
    return parser


def _run(options: argparse.Namespace) -> int:
    # Imported here because --help and --version do not need it.
    from load.report import lines
    from load.running import RunFailed, RunOptions, run

    profile = load_profile(options.profile)
    if options.seconds:
        profile = replace(profile, seconds=options.seconds)
    if options.times != 1.0:
        scaled = [replace(one, rate=one.rate * options.times) for one in profile.publishers]
        profile = replace(profile, publishers=scaled)
    own_topic = not options.topic
    name = options.topic or (profile.topics.name if options.start else f"nsq-load-{os.urandom(4).hex()}")
    profile = replace(profile, topics=replace(profile.topics, name=name))
    if options.kill and (not options.start or profile.cluster.nsqd < 2):
        raise ProfileError("--kill goes with --start and a profile of at least two nsqd")
    if options.bind != "127.0.0.1:0" and ":" not in options.bind:
        options.bind = f"{options.bind}:{MASTER_PORT}"
    if options.other_workers and options.bind == "127.0.0.1:0":
        options.bind = f":{MASTER_PORT}"
    try:
        run_options = RunOptions(
            lookupds=_lookupds(options),
            admins=options.nsqadmin,
            own_topic=own_topic and not options.keep,
            tls=_tls(options),
            auth_secret_file=str(Path(options.auth_secret_file).resolve())
            if options.auth_secret_file
            else "",
            # A cluster that this run starts is on this machine.
            auth_allow_cleartext=options.auth_allow_cleartext or bool(options.start),
            workers=options.workers,
            other_workers=options.other_workers,
            bind=options.bind,
            ui=options.ui,
            kill=options.kill,
            report=options.report,
            keep=options.keep,
            nsqd_flags=options.nsqd_flag,
        )
        _print(f"{profile.name}: {profile.about}")
        verdict = run(profile, run_options, _print)
    except RunFailed as error:
        _error(str(error))
        return 1
    for line in lines(verdict.result):
        _print(line)
    for sentence in verdict.problems:
        _print(sentence)
    if options.report:
        _print(f"Report: {options.report / 'report.html'}")
    if verdict.folder:
        _print(f"Kept: {verdict.folder}")
    for sentence in verdict.faults:
        _error(sentence)
    if not verdict.faults:
        _print("All that the profile asks for was reached.")
    return 1 if verdict.faults else 0


def load_profile(name: str) -> Profile:
    """Return the profile of this package with that name, or the one in a .toml file; raises ProfileError."""
    path = Path(name)
    if path.suffix == ".toml":
        try:
            return parse_profile(path.stem, path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise ProfileError(f"profile {name} cannot be read: {error.strerror}") from error
    if name not in profile_names():
        raise ProfileError(f"there is no profile {name}; there are {', '.join(profile_names())}")
    text = resources.files("load").joinpath("profiles", f"{name}.toml").read_text(encoding="utf-8")
    return parse_profile(name, text)


def profile_names() -> list[str]:
    folder = resources.files("load").joinpath("profiles")
    return sorted(one.name.removesuffix(".toml") for one in folder.iterdir() if one.name.endswith(".toml"))


def _list_profiles() -> int:
    for name in profile_names():
        profile = load_profile(name)
        write_output(f"{name:18} {profile.seconds:>5.0f} s  {profile.about}\n")
    return 0


def _work(master: str) -> int:
    """Replace this process by a Locust worker, which gets its plan from the master."""
    from load.swarm import environment, worker_flags

    address = master if ":" in master else f"{master}:{MASTER_PORT}"
    command = [sys.executable, "-m", "locust", *worker_flags(address)]
    os.execve(sys.executable, command, environment())


def _lookupds(options: argparse.Namespace) -> list[str]:
    if options.start:
        return []
    if options.attach:
        return [_with_port(one.removeprefix("http://").rstrip("/")) for one in options.attach]
    return release_lookupds(options.helm, options.namespace, options.cluster_domain)


def _with_port(address: str) -> str:
    """Add the default port if there is none; a leading ``https://`` stays."""
    host = address.rpartition("/")[2].rpartition("]")[2]
    return address if ":" in host else f"{address}:{HTTP_PORT}"


def release_lookupds(
    release: str, namespace: str, domain: str, look_up: LookUp = socket.getaddrinfo
) -> list[str]:
    """Return the HTTP addresses of a release's nsqlookupds by the chart's names; only pods can resolve them.

    *release* may also be the chart's fullnameOverride. Raises RunFailed.
    """
    if not namespace:
        mounted = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        namespace = mounted.read_text(encoding="utf-8") if mounted.exists() else "default"
    hosts = {
        f"{full}-nsqlookupd": f"{full}-nsqlookupd-headless.{namespace}.svc.{domain}"
        for full in (release if "nsq" in release else f"{release}-nsq", release)
    }
    problems: list[str] = []
    for name, host in hosts.items():
        try:
            left = _addresses_of(host, look_up)
        except OSError as error:
            problems.append(f"{host}: {error.strerror}")
        else:
            return _by_pod(name, host, left, look_up)
    from load.running import RunFailed

    raise RunFailed(
        f"No name server knows {', nor '.join(problems)}. Only pods of the cluster can look it up; there"
        " the chart nsq-load makes a Job that runs this."
        " From elsewhere --attach reaches forwarded ports."
    )


def _by_pod(name: str, host: str, left: set[str], look_up: LookUp) -> list[str]:
    """Return the addresses behind a headless service, as pod names where those resolve."""
    found = []
    # Pod names come first, because certificates contain them.
    for number in range(MAX_LOOKUPDS):
        pod = f"{name}-{number}.{host}"
        with suppress(OSError):
            left -= _addresses_of(pod, look_up)
            found.append(f"{pod}:{HTTP_PORT}")
        if not left:
            break
    return found + [f"[{one}]:{HTTP_PORT}" if ":" in one else f"{one}:{HTTP_PORT}" for one in sorted(left)]


def _addresses_of(host: str, look_up: LookUp) -> set[str]:
    return {str(one[4][0]) for one in look_up(host, HTTP_PORT, type=socket.SOCK_STREAM)}


def _tls(options: argparse.Namespace) -> dict[str, str]:
    found = {
        name: str(Path(getattr(options, name)).resolve())
        for name in ("tls_root_ca_file", "tls_cert", "tls_key")
        if getattr(options, name)
    }
    if options.tls_insecure_skip_verify:
        found["tls_insecure_skip_verify"] = "true"
    if options.tls and not found:
        found["tls_min_version"] = "tls1.2"  # the system's certificates and no other settings
    return found


def _allow_many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - signature of signal
    # Both the terminal and its shell send SIGHUP: the second one must not disturb the exit that the first
    # began.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt


def _print(text: str) -> None:
    write_message(text, sys.stdout)


def _error(text: str) -> None:
    write_message(f"nsq-load: {text}")
