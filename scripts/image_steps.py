#!/usr/bin/env python3
"""Run the steps of the Dockerfile in their order without a container engine, then start the result.

The Dockerfile itself is executed line by line, with a folder in place of the image's root, so the two cannot
differ. The Python that runs this script takes the place of the base image. Only a container could test the
base image itself, and that nothing outside of the image is used.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
SCRIPTS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"]
_SLIM = r"python:3\.\d+-slim(@sha256:[0-9a-f]{64})?"
LISTENING = re.compile(r"(TCP|HTTP): listening on (\S+)")


class ImageError(Exception):
    """The Dockerfile has an impossible step, or its result does not work; the text says which."""


@dataclass(frozen=True)
class Instruction:
    line: int
    keyword: str
    rest: str

    def options(self) -> tuple[dict[str, str], list[str]]:
        """Split ``--from=build a b`` into its options and its words."""
        words = shlex.split(self.rest)
        flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        return flags, [word for word in words if not word.startswith("--")]

    def pairs(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in shlex.split(self.rest))

    def exec_form(self) -> list[str]:
        """Return the words of a JSON list; the shell form is refused, because the image promises no shell."""
        if not self.rest.startswith("["):
            raise ImageError(f"Dockerfile line {self.line}: {self.keyword} must be a JSON list of words")
        return [str(word) for word in json.loads(self.rest)]


def parse(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile, comments dropped and continued lines joined."""
    instructions: list[Instruction] = []
    parts: list[str] = []
    start = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith("#") or not (line or parts):
            continue
        start = start if parts else number
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            keyword, _, rest = " ".join(parts).partition(" ")
            instructions.append(Instruction(start, keyword.upper(), rest.strip()))
            parts = []
    return instructions


def let_through(dockerignore: str) -> set[str]:
    """Return the names that a ``.dockerignore`` lets through after dropping everything. Raises ImageError."""
    lines = [line.strip() for line in dockerignore.splitlines() if line.strip() and not line.startswith("#")]
    if lines[:1] != ["*"]:
        raise ImageError(".dockerignore must begin with * and then name what the build needs")
    return {line[1:] for line in lines if line.startswith("!")}


@dataclass
class Image:
    """The files that a Dockerfile has built so far, below ``root``, and its current settings."""

    root: Path
    stages: Path
    stage: str = ""
    given: dict[str, str] = field(default_factory=dict)
    """As with ``--build-arg``: in the place of what an ARG says."""
    arguments: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = ""
    command: list[str] = field(default_factory=list)
    workdirs: dict[str, str] = field(default_factory=dict)
    """By stage: what is made from one begins there."""

    def place(self, path: str) -> Path:
        """Return where an absolute or relative path of the image lies on this machine."""
        return self.root / os.path.normpath(Path(self.workdir, path)).lstrip("/")

    def apply(self, step: Instruction) -> None:
        """Carry out one instruction. Raises ImageError."""
        handler = getattr(self, f"do_{step.keyword.lower()}", None)
        if handler is None:
            raise ImageError(f"Dockerfile line {step.line}: {step.keyword} is unknown to image_steps.py")
        handler(step)

    def do_arg(self, step: Instruction) -> None:
        name, _, default = step.rest.partition("=")
        self.arguments[name] = self.given.get(name, default)

    def do_from(self, step: Instruction) -> None:
        words = step.rest.split()
        base = re.sub(r"\$\{(\w+)\}", lambda found: self.arguments[found[1]], words[0])
        if self.root.exists():
            # All stages are built at one path, because programs of a virtual environment contain it.
            self.root.rename(self.stages / self.stage)
        if (self.stages / base).is_dir():
            self._go_on_from(base, words)
            return
        # A build stage may use the full base image; the stage that becomes the image may not.
        if not re.fullmatch(
            r"python:3\.\d+(-slim)?(@sha256:[0-9a-f]{64})?" if len(words) == 3 else _SLIM, base
        ):
            raise ImageError(f"Dockerfile line {step.line}: the base image {base} is not a slim Python")
        self.root.mkdir()
        self.stage = words[2] if len(words) == 3 else "final"
        self.environment, self.workdir, self.user, self.command = {}, "/", "", []
        mine = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
        if base.removesuffix("-slim") != mine.removesuffix("-slim"):
            print(f"note: {base} is replaced by Python {sys.version.split()[0]}")

    def _go_on_from(self, base: str, words: list[str]) -> None:
        """Begin a stage with the files and working directory of another stage of this file."""
        shutil.copytree(self.stages / base, self.root, symlinks=True)
        self.stage = words[2] if len(words) == 3 else "final"
        self.environment, self.workdir, self.user, self.command = {}, self.workdirs[base], "", []

    def do_label(self, step: Instruction) -> None:
        step.pairs()

    def do_workdir(self, step: Instruction) -> None:
        self.workdir = self.workdirs[self.stage] = step.rest
        self.place(".").mkdir(parents=True, exist_ok=True)

    def do_copy(self, step: Instruction) -> None:
        flags, words = step.options()
        *sources, target = words
        allowed = let_through((PROJECT / ".dockerignore").read_text())
        for source in sources:
            if "from" in flags:
                origin = self.stages / flags["from"] / source.lstrip("/")
            elif {source, source.split("/")[0]} & allowed:
                origin = PROJECT / source
            else:
                raise ImageError(f"Dockerfile line {step.line}: .dockerignore keeps {source} out")
            if not origin.exists():
                raise ImageError(f"Dockerfile line {step.line}: {source} does not exist")
            # As in Docker, the contents of a folder go into the target, and a file gets the target's name.
            if origin.is_dir():
                kept_out = [] if "from" in flags else ["__pycache__", "*.pyc"]
                skip = shutil.ignore_patterns(*kept_out)
                shutil.copytree(origin, self.place(target), symlinks=True, ignore=skip, dirs_exist_ok=True)
            else:
                self.place(target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(origin, self.place(target))
        if "chown" in flags and os.geteuid() == 0:
            uid, gid = map(int, flags["chown"].split(":"))
            for path in [self.place(target), *self.place(target).rglob("*")]:
                os.chown(path, uid, gid)

    def do_run(self, step: Instruction) -> None:
        # Absolute paths of the image become paths below root. Here pip may use its cache, because no image
        # contains that.
        command = re.sub(r"(?<=\s)/(?=\w)", f"{self.root}/", step.rest).replace(" --no-cache-dir", "")
        environment = (
            os.environ | self.arguments | {"PATH": f"{self.root.parent / 'bin'}:{os.environ['PATH']}"}
        )
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.place("."),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ImageError(f"Dockerfile line {step.line}: RUN {step.rest}\n{done.stdout}{done.stderr}")

    def do_env(self, step: Instruction) -> None:
        for name, value in step.pairs().items():
            inside = ":".join(f"{self.root}{part}" if part[:1] == "/" else part for part in value.split(":"))
            self.environment[name] = inside.replace("$PATH", "/usr/local/bin:/usr/bin:/bin")

    def do_user(self, step: Instruction) -> None:
        if not re.fullmatch(r"[1-9]\d*:[1-9]\d*", step.rest):
            raise ImageError(f"Dockerfile line {step.line}: USER must be two numbers, neither of them root's")
        self.user = step.rest

    def do_volume(self, step: Instruction) -> None:
        if not self.place(step.rest).is_dir():
            raise ImageError(f"Dockerfile line {step.line}: the volume {step.rest} has no folder below it")

    def do_expose(self, step: Instruction) -> None:
        for port in step.rest.split():
            int(port)

    def do_cmd(self, step: Instruction) -> None:
        self.command = step.exec_form()

    def identity(self) -> dict[str, int]:
        """Return Popen arguments for the image's user; empty if this machine does not allow that."""
        base = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
        reachable = all(parent.stat().st_mode & 0o001 for parent in base.parents)
        if os.geteuid() != 0 or not reachable:
            return {}
        uid, gid = map(int, self.user.split(":"))
        return {"user": uid, "group": gid}

    @contextlib.contextmanager
    def running(self, words: list[str]) -> Iterator[subprocess.Popen[str]]:
        inside = [re.sub(r"(?<==)/(?=\w)", f"{self.root}/", word) for word in words]
        program = shutil.which(inside[0], path=self.environment["PATH"])
        if program is None or not program.startswith(str(self.root)):
            raise ImageError(f"the image holds no program {words[0]}")
        process = subprocess.Popen(
            [program, *inside[1:]],
            cwd=self.place("."),
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            extra_groups=[] if self.identity() else None,
            **self.identity(),  # type: ignore[call-overload]
        )
        # A silent daemon must not block the build.
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            if process.poll() is None:
                process.kill()
            process.communicate()


def check_version(image: Image, program: str) -> None:
    with image.running([program, "--version"]) as process:
        text, _ = process.communicate(timeout=30)
        # The image's nsqd is the compiled one.
        kind = "-compiled" if program == "nsqd" else ""
        built = rf" \(built w/nsq-cluster-[\d.]+-python3\.\d+{kind}\)"
        if process.returncode or not re.fullmatch(rf"{program} v\d+\.\d+\.\d+{built}\n", text):
            raise ImageError(f"{program} --version ended with {process.returncode} and said: {text}")
    print(f"  {text.strip()}")


def check_contents(image: Image) -> None:
    """Check that the image's SBOM names every installed package. Raises ImageError."""
    listed = json.loads((image.root / "opt/nsq/sbom.cdx.json").read_text())
    named = {(each["name"].lower(), each["version"]) for each in listed["components"]}
    there = {
        (name.lower(), version)
        for name, version in re.findall(
            r"/([^/]+)-([^/-]+)\.dist-info$",
            "\n".join(map(str, image.root.glob("opt/nsq/lib/python3.*/site-packages/*.dist-info"))),
            re.MULTILINE,
        )
    }
    spelled = {(name.replace("-", "_").replace(".", "_"), version) for name, version in named}
    missing = {(name.replace(".", "_"), version) for name, version in there} - spelled
    if missing:
        raise ImageError(f"the SBOM does not name {sorted(missing)}")
    size = sum(path.stat().st_size for path in (image.root / "opt/nsq").rglob("*") if path.is_file())
    print(f"  the SBOM names {len(named)} packages; /opt/nsq has {size / 1e6:.0f} MB")


def check_cluster(image: Image) -> None:
    """Start the three daemons from the image, each finding the one before, and stop them with SIGTERM."""
    with contextlib.ExitStack() as stack:
        lookupd = stack.enter_context(serving(image, "nsqlookupd", "--tcp-address=127.0.0.1:0"))
        announce = f"--lookupd-tcp-address={lookupd['TCP']}"
        nsqd = stack.enter_context(
            serving(image, "nsqd", "--data-path=/data", "--tcp-address=127.0.0.1:0", announce)
        )
        ask = f"--lookupd-http-address={lookupd['HTTP']}"
        nsqadmin = stack.enter_context(serving(image, "nsqadmin", ask))
        # The page of nsqadmin proves that the templates are in the wheel, and its asset the libraries.
        asked = ((lookupd, "/ping"), (nsqd, "/ping"), (nsqadmin, "/"), (nsqadmin, "/static/uplot.js"))
        for address, path in asked:
            with urllib.request.urlopen(f"http://{address['HTTP']}{path}", timeout=30) as answer:
                answer.read()


def check_load(image: Image) -> None:
    """Check that nsq-load lists its profiles, and that a short run meets its profile. Raises ImageError."""
    print(f"The image of nsq-load, run as user {image.user}:")
    said = {}
    for words in (image.command, ["nsq-load", "run", "smoke", "--start", "--seconds=3", "--times=0.2"]):
        with image.running(words) as process:
            said[words[1]], _ = process.communicate(timeout=60)
            if process.returncode:
                raise ImageError(f"{' '.join(words)} ended with {process.returncode}:\n{said[words[1]]}")
    print(f"  nsq-load knows {len(said['profiles'].splitlines())} profiles")
    print(f"  {said['run'].strip().splitlines()[-1]}")


@contextlib.contextmanager
def serving(image: Image, daemon: str, *flags: str) -> Iterator[dict[str, str]]:
    """Run a daemon and yield its addresses; at the end it must stop on SIGTERM with 0. Raises ImageError."""
    with image.running([daemon, "--http-address=127.0.0.1:0", *flags]) as process:
        assert process.stdout is not None
        said = ""
        addresses: dict[str, str] = {}
        for line in process.stdout:
            said += line
            addresses |= dict(LISTENING.findall(line))
            if "HTTP" in addresses:
                break
        else:
            raise ImageError(f"{daemon} ended with {process.wait()} before it listened:\n{said}")
        yield addresses
        process.terminate()
        process.communicate(timeout=30)
        if process.returncode:
            raise ImageError(f"{daemon} ended with {process.returncode} after SIGTERM instead of 0")
    print(f"  {daemon} served and stopped on SIGTERM")


def needed(steps: list[Instruction], *targets: str) -> list[Instruction]:
    """Return the instructions of the last stage, of *targets*, and of the stages they are made from."""
    before: list[Instruction] = []
    stages: dict[str, list[Instruction]] = {"": before}
    name = ""
    for step in steps:
        if step.keyword == "FROM":
            words = step.rest.split()
            name = words[2] if len(words) == 3 else "final"
            stages[name] = []
        stages[name].append(step)
    for target in targets:
        if target not in stages:
            raise ImageError(f"the Dockerfile has no stage {target}")
    wanted = ["", name, *targets]
    for stage in wanted:
        for step in stages[stage]:
            origin = step.options()[0].get("from", "") if step.keyword == "COPY" else ""
            origin = step.rest.split()[0] if step.keyword == "FROM" else origin
            if origin in stages and origin not in wanted:
                wanted.append(origin)
    return [step for stage, own in stages.items() if stage in wanted for step in own]


def build(
    dockerfile: Path,
    work: Path,
    checks: dict[str, Callable[[Image], None]] | None = None,
    given: dict[str, str] | None = None,
) -> Image:
    """Execute a Dockerfile below ``work`` and return the image it describes.

    ``checks`` maps further targets to a check that is called before the next stage begins;
    ``given`` are values for the Dockerfile's ARGs.
    """
    (work / "stages").mkdir()
    (work / "bin").mkdir()
    (work / "bin" / "python").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    image = Image(root=work / "root", stages=work / "stages", given=given or {})
    checks = checks or {}
    for step in needed(parse(dockerfile.read_text()), *checks):
        if step.keyword == "FROM" and image.stage in checks:
            checks[image.stage](image)
        print(f"{step.line:3}  {step.keyword} {step.rest}", flush=True)
        image.apply(step)
    if not image.user:
        raise ImageError("the Dockerfile sets no USER, so the daemons would run as root")
    if not image.command:
        raise ImageError("the Dockerfile sets no CMD")
    return image


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dockerfile", type=Path, default=PROJECT / "Dockerfile")
    parser.add_argument("--keep", type=Path, help="keep what was compiled, for scripts/compiled_copy FOLDER")
    parser.add_argument("--load", action="store_true", help="build the image of nsq-load too, and run it")
    arguments = parser.parse_args()
    keeper = [sys.executable, PROJECT / "scripts" / "compiled_copy"]
    # Asked for before anything is compiled, because the sources may change during that.
    made = subprocess.check_output([*keeper, "--made-of"], text=True).strip()
    with tempfile.TemporaryDirectory(prefix="nsq-image-") as folder:
        work = Path(folder).resolve()
        work.chmod(0o755)
        try:
            image = build(arguments.dockerfile, work, {"load": check_load} if arguments.load else {})
            who = f"user {image.user}" if image.identity() else "this user, which is not the one of the image"
            print(f"The programs of the image, run as {who}:")
            for program in SCRIPTS:
                check_version(image, program)
            check_contents(image)
            check_cluster(image)
            if arguments.keep:
                (packages,) = image.root.glob("opt/nsq/lib/python3.*/site-packages")
                subprocess.run([*keeper, "--keep", arguments.keep, packages, made], check=True)
        except (ImageError, OSError, subprocess.TimeoutExpired) as error:
            print(f"image: {error}", file=sys.stderr)
            return 1
    print("All steps of the Dockerfile ran, and what they made works. No container was built.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
