"""The Dockerfile, read line by line; tests marked slow run its steps."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "scripts" / "image_steps.py"


@pytest.fixture(scope="module")
def image_steps():
    spec = importlib.util.spec_from_file_location("image_steps", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module by its name.
    sys.modules["image_steps"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["image_steps"]


@pytest.fixture
def steps(image_steps):
    return image_steps.parse((PROJECT / "Dockerfile").read_text())


@pytest.fixture
def final(steps):
    """The instructions of the last stage."""
    last = max(number for number, step in enumerate(steps) if step.keyword == "FROM")
    return steps[last:]


def the_only(steps, keyword):
    (found,) = [step for step in steps if step.keyword == keyword]
    return found


def test_instructions_are_known_to_script_that_runs_them(steps, image_steps):
    unknown = {step.keyword for step in steps if not hasattr(image_steps.Image, f"do_{step.keyword.lower()}")}

    assert unknown == set()


def test_continued_lines_and_comments_are_read_as_docker_reads_them(image_steps):
    text = '# a comment\nENV A=1 \\\n    # in between\n    B=2\n\nCMD ["x"]\n'

    assert [(step.line, step.keyword, step.rest) for step in image_steps.parse(text)] == [
        (2, "ENV", "A=1 B=2"),
        (6, "CMD", '["x"]'),
    ]


def test_image_runs_as_user_chart_names(final, chart):
    ids = chart.values["securityContext"]

    assert the_only(final, "USER").rest == f"{ids['runAsUser']}:{ids['runAsGroup']}"


def test_image_starts_daemon_without_shell(final):
    assert the_only(final, "CMD").exec_form() == ["nsqd", "--data-path=/data"]
    assert [step for step in final if step.keyword in {"ENTRYPOINT", "SHELL", "RUN"}] == []


def test_stages_outside_image_are_skipped(image_steps, steps):
    needed = image_steps.needed(steps)
    stages = [step.rest.partition(" AS ")[2] for step in needed if step.keyword == "FROM"]

    assert stages == ["build", ""]
    assert needed[0].keyword == "ARG"
    assert not [step for step in needed if "[spark]" in step.rest]


def test_data_volume_belongs_to_user_of_image(final):
    user = the_only(final, "USER").rest

    assert the_only(final, "VOLUME").rest == "/data"
    assert any(
        step.options() == ({"from": "build", "chown": user}, ["/data", "/data"])
        for step in final
        if step.keyword == "COPY"
    )


def test_ports_of_all_daemons_are_exposed(final):
    assert the_only(final, "EXPOSE").rest == "4150 4151 4152 4160 4161 4162 4170 4171 4172"


def test_packages_of_wheel_are_copied_and_let_through(steps, image_steps):
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    copied = {
        word
        for step in steps
        if step.keyword == "COPY" and "from" not in step.options()[0]
        for word in step.options()[1][:-1]
    }

    assert packages <= copied
    assert image_steps.let_through((PROJECT / ".dockerignore").read_text()) >= copied


def test_python_of_image_is_one_project_allows(steps):
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    oldest = re.fullmatch(r">=3\.(\d+)", project["requires-python"])
    chosen = next(found for step in steps if (found := re.fullmatch(r"PYTHON_VERSION=3\.(\d+)", step.rest)))

    assert oldest is not None
    assert int(chosen[1]) >= int(oldest[1])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("ADD x y", "ADD is unknown"),
        ("USER root", "neither of them root's"),
        ("USER 0:0", "neither of them root's"),
        ("CMD nsqd --data-path=/data", "CMD must be a JSON list"),
        ("FROM debian:12", "debian:12 is not a slim Python"),
        ("COPY tests tests", ".dockerignore keeps tests out"),
        ("VOLUME /nowhere", "/nowhere has no folder"),
        ("RUN exit 3", "RUN exit 3"),
    ],
)
def test_line_that_breaks_promise_is_named(image_steps, tmp_path, capsys, line, sentence):
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f"FROM python:3.11-slim\n{line}\n")
    work = tmp_path / "work"
    work.mkdir()

    with pytest.raises(image_steps.ImageError, match="line 2") as refusal:
        image_steps.build(dockerfile, work)

    assert sentence in str(refusal.value)


def test_build_argument_replaces_default_of_dockerfile(image_steps, tmp_path):
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(
        'FROM python:3.11-slim\nARG A=1\nARG B=2\nRUN echo $A$B > said\nUSER 1:1\nCMD ["x"]\n'
    )
    said = []
    for given in ({}, {"A": "0"}):
        work = tmp_path / f"work-{len(said)}"
        work.mkdir()
        said.append((image_steps.build(dockerfile, work, given=given).root / "said").read_text())

    assert said == ["12\n", "02\n"]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_dockerfile_steps_make_working_daemons_tools_and_load():
    # Stage "compiled" of ./test continues with the build that is kept here, and then compiles nothing itself.
    quick = {**os.environ, "NSQD_COMPILE_LEVEL": "0"}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--load", f"--keep={PROJECT / '.compiled'}"],
        env=quick,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "  nsq-load knows 10 profiles" in done.stdout
    assert "  All that the profile asks for was reached." in done.stdout
    for daemon in ("nsqd", "nsqlookupd", "nsqadmin"):
        assert re.search(
            rf"^  {daemon} v\d\S* \(built w/nsq-cluster-[\d.]+-python3\.\d+(-compiled)?\)$",
            done.stdout,
            re.MULTILINE,
        )
        assert f"  {daemon} served and stopped on SIGTERM" in done.stdout
    for script in tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"]:
        assert re.search(rf"^  {script} v\d\S* \(built w/\S+\)$", done.stdout, re.MULTILINE), script


def test_installed_packages_are_locked_to_version_and_checksum(steps):
    installs = [
        step.rest for step in steps if " install " in step.rest and "/opt/nsq/bin/python" in step.rest
    ]
    (of_others, of_ours, *_) = installs

    assert "--require-hashes --requirement deploy/image/requirements.txt" in of_others
    assert "--no-deps /wheels/*.whl" in of_ours


def test_requirements_are_locked():
    script = PROJECT / "scripts" / "lock.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", ["deploy/image/requirements.txt", "constraints.txt"])
def test_locks_name_versions_and_no_address(path):
    lines = (PROJECT / path).read_text().splitlines()
    packages = [number for number, line in enumerate(lines) if "==" in line]

    assert len(packages) > 20
    assert [line for line in lines if "://" in line or line.startswith(("-", "."))] == []
    if path.startswith("deploy"):
        assert all(lines[number + 1].strip().startswith("--hash=sha256:") for number in packages)
    else:
        assert all("==" in line for line in lines[1:])


def test_base_images_can_be_pinned(steps):
    bases = [step.rest.split()[0] for step in steps if step.keyword == "FROM"]

    # A stage that is made from another stage of this file has no base image.
    assert [base for base in bases if base.startswith("python:") and "DIGEST}" not in base] == []


@pytest.mark.parametrize(
    ("stage", "command"),
    [("load", ["nsq-load", "profiles"]), ("tools", ["python", "-c"]), ("archive", ["nsq-archive", "--help"])],
)
def test_other_images_have_the_same_user_and_environment(steps, final, stage, command):
    begins = [number for number, step in enumerate(steps) if step.keyword == "FROM"]
    (first,) = [number for number in begins if steps[number].rest.endswith(f" AS {stage}")]
    found = steps[first : begins[begins.index(first) + 1]]

    assert the_only(found, "USER").rest == the_only(final, "USER").rest
    assert the_only(found, "CMD").exec_form()[:2] == command
    environment = the_only(found, "ENV").pairs()
    options = environment.pop("SPARK_SUBMIT_OPTS", "")
    assert environment == the_only(final, "ENV").pairs()
    if stage == "archive":
        uid = the_only(final, "USER").rest.partition(":")[0]
        (adds_user, keeps_classes) = [step.rest for step in found if step.keyword == "RUN"]
        assert f"useradd --uid {uid} " in adds_user
        assert "-XX:SharedArchiveFile=/opt/nsq/spark-classes.jsa" in options
        assert "-XX:ArchiveClassesAtExit=/opt/nsq/spark-classes.jsa" in keeps_classes


@pytest.fixture
def docker(tmp_path):
    """A folder with a stand-in for docker, which records its arguments and knows one digest."""
    (tmp_path / "docker").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncase "$3" in inspect) echo sha256:{"a" * 64} ;; esac\n'
    )
    (tmp_path / "docker").chmod(0o755)
    return tmp_path


def test_release_builds_every_target_for_every_processor_from_pinned_bases(docker):
    done = subprocess.run(
        [PROJECT / "scripts" / "image-release", "registry.example.com/nsq", "1.2.3"],
        env={"PATH": f"{docker}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    builds = [line for line in (docker / "asked").read_text().splitlines() if line.startswith("buildx build")]
    assert [re.search(r"name=(\S+?),", line)[1] for line in builds] == [
        "registry.example.com/nsq/nsq-cluster:1.2.3",
        "registry.example.com/nsq/nsq-cluster-archive:1.2.3",
        "registry.example.com/nsq/nsq-cluster-load:1.2.3",
        "registry.example.com/nsq/nsq-cluster-tools:1.2.3",
    ]
    for line in builds:
        assert "--platform=linux/amd64,linux/arm64" in line
        assert f"--build-arg=SLIM_DIGEST=@sha256:{'a' * 64}" in line
        assert "--sbom=true" in line
        assert "rewrite-timestamp=true" in line
        assert re.search(r"--build-arg=SOURCE_DATE_EPOCH=\d{10} ", line)
    assert f"python:3.11-slim@sha256:{'a' * 64}" in done.stdout
