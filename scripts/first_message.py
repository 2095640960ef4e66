#!/usr/bin/env python3
"""Measure how long a new user waits for the first message, by each way that the README names.

    scripts/first_message.py [pip] [run] [compose] [chart]

Each way starts from a fresh copy of the committed state and ends when a published message has been read.
*pip* installs into a new environment and starts nsqd. *run* is ./run. *compose* runs the steps of the
Dockerfile (scripts/image_steps.py) and then the command lines of compose.yaml; *chart* renders the chart with
its default values and starts the command lines of the first pod of each kind. Neither needs a container
engine: the process has a private network with the ports, and a hosts file with the names, that the containers
would have. That needs root.
"""

import contextlib
import ctypes
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

PROJECT = Path(__file__).resolve().parent.parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
TOPIC, BODY = "greetings", b"hello world"
LONGEST_S = 900
CLONE_NEWNS = 0x20000  # private mounts
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18


class TooLateError(Exception):
    """No message arrived in time."""


def loaded(path: str) -> ModuleType:
    """Return a file of this project as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, PROJECT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def running(*command: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process and end it when the block ends; print its output if the block raises TooLateError."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=cwd, stdout=log, stderr=log)
        try:
            yield process
        except TooLateError:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-3000:])
            raise
        finally:
            process.terminate()
            process.wait(60)


def answered(url: str, body: bytes | None = None) -> bytes:
    """Repeat the request until it is answered with 200 and return the body. Raises TooLateError."""
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, body, timeout=5) as answer:
            return bytes(answer.read())
        time.sleep(0.05)
    raise TooLateError(url)


def sent_and_read(programs: Path, source: str, host: str = "127.0.0.1") -> None:
    """Publish a message as the README does, and read it with the installed nsq_tail. Raises TooLateError."""
    answered(f"http://{host}:4151/pub?topic={TOPIC}", BODY)
    command = [f"{programs}/nsq_tail", f"--topic={TOPIC}", source, "-n=1"]
    read = subprocess.run(command, capture_output=True, timeout=LONGEST_S, check=True).stdout
    if read.strip() != BODY:
        raise TooLateError(f"nsq_tail printed {read!r}")


def fresh_copy(folder: Path) -> Path:
    subprocess.run(["git", "clone", "-q", PROJECT, folder / "nsq"], check=True)
    return folder / "nsq"


def with_network_of_its_own(hosts: dict[str, str], folder: Path) -> None:
    """Move this process into a private network in which these names have these addresses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not loaded("tests/compat/plugins/own_network.py").leave_the_common_network():
        raise SystemExit("this way needs a network of its own, which this system does not allow")
    table = folder / "hosts"
    table.write_text(
        "".join(f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **hosts}.items())
    )
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise SystemExit("this way needs mounts of its own: run it as root")
    if libc.mount(str(table).encode(), b"/etc/hosts", None, MS_BIND, None):
        raise SystemExit("the table of hosts could not be replaced")


# --- the ways


def by_pip(folder: Path) -> None:
    """Follow the row "install it" of the README."""
    row = re.search(r"`(pip install [^`]+)`.*?`(nsqd --data-path=)DIR`", README)
    assert row is not None, "the README no longer says how to install it"
    source = fresh_copy(folder)
    subprocess.run([sys.executable, "-m", "venv", folder / "new"], check=True)
    programs = folder / "new" / "bin"
    subprocess.run([f"{programs}/pip", "-q", *shlex.split(row[1])[1:]], cwd=source, check=True)
    with_network_of_its_own({}, folder)
    with running(f"{programs}/nsqd", f"--data-path={folder}"):
        sent_and_read(programs, "--nsqd-tcp-address=127.0.0.1:4150")


def by_run(folder: Path) -> None:
    """Start ./run and wait until its sample readers have finished a message."""
    source, offset = fresh_copy(folder), 21_000
    with running("./run", f"--data={folder}/data", f"--port-offset={offset}", cwd=source) as process:
        while b'finish_count":' not in re.sub(
            rb'"finish_count":0\b', b"", answered(f"http://127.0.0.1:{4151 + offset}/stats?format=json")
        ):
            if process.poll() is not None:
                raise TooLateError("./run has ended")
            time.sleep(0.05)


def by_compose(folder: Path) -> None:
    """Build the image of the Dockerfile and run the three commands of compose.yaml."""
    import yaml

    steps = loaded("scripts/image_steps.py")
    work = folder / "image"
    work.mkdir()
    began = time.monotonic()
    # No variable is set, so the default behind ":-" is used.
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (PROJECT / "compose.yaml").read_text(encoding="utf-8"))
    services = yaml.safe_load(text)["services"]
    (recipe,) = (service["build"] for service in services.values() if "build" in service)
    image = steps.build(PROJECT / recipe["context"] / "Dockerfile", work, given=recipe["args"])
    print(f"  the image is built after {time.monotonic() - began:.0f} s", flush=True)
    commands = [service["command"] for service in services.values()]
    containers(folder, image.root / "opt/nsq/bin", commands, dict.fromkeys(services, "127.0.0.1"))


def by_chart(folder: Path) -> None:
    """Render the chart with its default values and start the first pod of each kind."""
    sys.path.insert(0, str(PROJECT))
    from helm_python import Chart

    from tests.deploy.release import CHART, NAMESPACE, render

    with Chart.load(CHART) as chart:
        release = render(chart, {})
    daemons = ("nsqlookupd", "nsqd", "nsqadmin")
    commands = [[name, *release.command_line(name)] for name in daemons]
    # The other pods have an address at which nothing listens.
    names = {}
    for word in " ".join(map(" ".join, commands)).replace("=", " ").split():
        host = word.rpartition(":")[0]
        if f".{NAMESPACE}.svc" in host or f".{NAMESPACE}.svc" in word:
            names[host or word] = "127.0.0.1" if re.match(r"[\w-]+-0\.", word) else "127.1.1.1"
    containers(folder, Path(sys.executable).parent, commands, names)


def containers(folder: Path, programs: Path, commands: list[list[str]], names: dict[str, str]) -> None:
    """Run the containers' commands as processes of this host, with a folder for each container's paths."""
    with_network_of_its_own(names, folder)
    with contextlib.ExitStack() as stack:
        for program, *flags in commands:
            (folder / program).mkdir()
            there = [re.sub(r"(?<==)/(data|place)", rf"{folder / program}", flag) for flag in flags]
            if any(flag.startswith("--config=") for flag in there):  # an init container would write it
                (folder / program / "nsqd.toml").touch()
            stack.enter_context(running(f"{programs}/{program}", *there))
        began = time.monotonic()
        sent_and_read(programs, "--lookupd-http-address=127.0.0.1:4161")
        answered("http://127.0.0.1:4171/")
        print(f"  from the start of the daemons to the message {time.monotonic() - began:.1f} s", flush=True)


WAYS = {"pip": by_pip, "run": by_run, "compose": by_compose, "chart": by_chart}


def main(ways: list[str]) -> int:
    if not WAYS.keys() >= set(ways):
        print(f"usage: scripts/first_message.py [{'|'.join(WAYS)} ...]", file=sys.stderr)
        return 2
    if len(ways) == 1:
        folder = Path(tempfile.mkdtemp(prefix="first-message-"))
        began = time.monotonic()
        try:
            WAYS[ways[0]](folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"{ways[0]}: the first message after {time.monotonic() - began:.1f} s", flush=True)
        return 0
    # Each way runs in a separate process, because a process cannot leave a private network again.
    return max(
        subprocess.run([sys.executable, __file__, way], check=False).returncode for way in ways or WAYS
    )


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main(sys.argv[1:]))
