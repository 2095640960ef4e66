"""scripts/release refuses a version that is not ready, and builds packages that can be installed."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from nsqcore.version import VERSION

ROOT = Path(__file__).parents[2]


def run(*command, cwd=ROOT, env=None):
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def project(tmp_path):
    """A repository with the files that the script reads."""
    for name in ("scripts/release", "nsqcore/version.py"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{VERSION}] - 2026-11-22\n")
    who = ("-c", "user.name=t", "-c", "user.email=t@t")
    run("git", "init", "--quiet", cwd=tmp_path)
    run("git", "add", "--all", cwd=tmp_path)
    assert run("git", *who, "commit", "--quiet", "-m", "all", cwd=tmp_path).returncode == 0
    return tmp_path


def release(project, *arguments):
    return run(project / "scripts/release", *arguments, cwd=project, env={"DRY_RUN": "1"})


def test_dry_run_says_each_step_and_does_none(project):
    done = release(project, VERSION, "registry.example.com/nsq")

    assert done.returncode == 0, done.stderr
    steps = [line.removeprefix("+ ").split()[0] for line in done.stdout.splitlines() if line.startswith("+ ")]
    assert [step for step in steps if step in {"./test", "packages", "scripts/image-release", "git"}] == [
        "./test",
        "packages",
        "scripts/image-release",
        "git",
    ]
    assert not (project / "dist").exists()
    assert run("git", "tag", cwd=project).stdout == ""


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("9.9.9", "nsqcore/version.py has another version than 9.9.9"),
        ("1.0", "usage: scripts/release MAJOR.MINOR.PATCH"),
    ],
)
def test_version_mismatch_is_refused(project, version, sentence):
    done = release(project, version)

    assert done.returncode
    assert sentence in done.stderr


def test_changes_that_are_not_committed_are_refused(project):
    (project / "new").write_text("")

    assert "there are changes that are not committed" in release(project, VERSION).stderr


def test_version_without_section_in_changelog_is_refused(project):
    (project / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")

    assert f'CHANGELOG.md has no section "## [{VERSION}] - DATE"' in release(project, VERSION).stderr


def test_version_is_tagged_once(project):
    run("git", "tag", f"v{VERSION}", cwd=project)

    assert f"v{VERSION} is tagged already" in release(project, VERSION).stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_packages_are_wheels_and_archives_with_static_files(tmp_path):
    # The test of the image installs such wheels and runs every script.
    built = run(ROOT / "scripts/release", "packages", tmp_path / "dist")

    assert built.returncode == 0, built.stderr
    names = sorted(path.name for path in (tmp_path / "dist").iterdir())
    assert [name for name in names if name.endswith(".tar.gz")] == [
        name.replace("-py3-none-any.whl", ".tar.gz") for name in names if name.endswith(".whl")
    ]
    assert len(names) == 6
    (wheel,) = (tmp_path / "dist").glob("nsq_cluster-*.whl")
    found = {Path(name).name for name in zipfile.ZipFile(wheel).namelist()}
    pages = ROOT / "nsqadmin" / "pages"
    shown = {path.name for folder in ("templates", "static") for path in (pages / folder).glob("[!.]*")}
    assert found >= shown | {"uplot.js", "uplot.css"}
