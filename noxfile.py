"""The stages of ./test. One stage with arguments of pytest: ``nox -s fast -- -k name``.

Three stages with nine or ten processes keep two processors busy, because most tests wait for daemons.
With more processes, programs that wait for each other, like Spark and its Python, exceed their time limits.
"""

import re
import subprocess
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
ROOT = Path(__file__).parent
BIN = ROOT / ".venv" / "bin"
NEWEST = ROOT / ".venv-newest"
SPECIAL = "(chaos or browser or spark or compat)"
FAST = f"not slow and not {SPECIAL}"
# The pages that people write; scripts write those in docs/reference and of the charts.
FOLDERS = (".", "docs", "docs/evidence", "docs/internals", "client", "pipelines")
PAGES = [str(page) for folder in FOLDERS for page in Path(folder).glob("*.md")]


def suite(session: nox.Session, marks: str, *arguments: str, python: Path = BIN / "python") -> None:
    """Run the tests with these marks. A failed test runs up to twice more; tests/conftest.py reports it."""
    cache = ROOT / ".pytest_cache" / session.name
    session.run(
        *(str(python), "-m", "pytest", "-q", "-m", marks, "-o", f"cache_dir={cache}"),
        *("--reruns=2", "--reruns-delay=2", "--durations=10"),
        *arguments,
        *session.posargs,
    )


def files_of(mark: str) -> list[str]:
    """Return the files with tests of a mark, because collecting all files takes several seconds."""
    found = sorted(Path("tests").rglob("test_*.py"))
    return [str(file) for file in found if re.search(rf"mark\.{mark}\b", file.read_text())]


@nox.session
def lint(session: nox.Session) -> None:
    """Style, types, import rules, words and links."""
    # mypy uses only one processor, so the other checks run at the same time.
    with subprocess.Popen([BIN / "mypy"]) as types:
        session.run(BIN / "ruff", "check", ".")
        session.run(BIN / "ruff", "format", "--check", ".")
        session.run(BIN / "mdformat", "--check", *PAGES)
        session.run(BIN / "lint-imports")
        session.run(BIN / "python", "scripts/prose.py")
        session.run("scripts/web", "lint", external=True)
        session.run(BIN / "mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"}, silent=True)
    if types.returncode:
        session.error("mypy found errors")


@nox.session
def fast(session: nox.Session) -> None:
    """The unit tests and most integration tests."""
    session.run("scripts/programs", "fast")
    suite(session, FAST, "-n5", "--dist=worksteal")


@nox.session
def slow(session: nox.Session) -> None:
    """Tests of several seconds."""
    # The image compiles for minutes, so it comes first and the others run at the same time.
    files = ["tests/deploy/test_image.py", *files_of("slow")]
    suite(session, f"slow and not {SPECIAL}", "-n2", "-p", "no:randomly", "--dist=worksteal", *files)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Random bytes for every reader of bytes."""
    session.run(BIN / "python", "-m", "tests.fuzz", "--seconds", "6")


@nox.session
def chaos(session: nox.Session) -> None:
    """Daemons are killed while messages flow."""
    suite(session, "chaos and not spark", "-n3", "--dist=worksteal", *files_of("chaos"))


@nox.session
def browser(session: nox.Session) -> None:
    """The admin pages in Chromium."""
    session.run("scripts/programs", "browser")
    suite(session, "browser", "-n2", "--dist=loadfile", *files_of("browser"))


@nox.session
def spark(session: nox.Session) -> None:
    """Pipelines on a local Spark."""
    session.run("scripts/programs", "spark")
    # Spark lives shortly here. Without Java's second compiler and its garbage collector for large heaps these
    # tests take a third less of the processors.
    session.env["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # With Spark's classes in one archive each start takes some seconds less.
    classes = ROOT / ".pytest_cache" / "spark-classes.jsa"
    if not classes.exists():
        classes.parent.mkdir(exist_ok=True)
        home = session.run(BIN / "python", "-c", "import pyspark; print(pyspark.__path__[0])", silent=True)
        spark_sql = Path(home.strip(), "bin", "spark-sql")
        session.env["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={classes}"
        in_memory = "--conf=spark.sql.catalogImplementation=in-memory"
        session.run(str(spark_sql), "--master=local[1]", in_memory, "-e", "SELECT 1", silent=True)
    session.env["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={classes} -Xlog:cds=off -Xlog:cds+dynamic=off"
    # Files with one or two tests have the longest ones. They come first, so that both workers end together.
    long = ("standalone", "connect")
    first = [f"tests/pipelines/test_{name}.py" for name in long]
    files = [*first, *(file for file in files_of("spark") if file not in first)]
    order = ("-p", "no:randomly", "--dist=loadfile", "--no-loadscope-reorder")
    suite(session, "spark", "-n2", *order, *files)


@nox.session
def compat(session: nox.Session) -> None:
    """Test suites of public NSQ clients against our daemons."""
    suite(session, "compat", "-n2", *files_of("compat"))


@nox.session
def compiled(session: nox.Session) -> None:
    """With nsqd's hot path in C: its unit tests, and tests of wire and log that wait little."""
    session.run("scripts/programs", "compiled")
    copy = ROOT / ".compiled"
    session.run(BIN / "python", "scripts/compiled_copy", str(copy))
    session.chdir(copy)
    if "compiled" not in session.run(BIN / "python", "-m", "nsqd", "--version", silent=True):
        session.error("nsqd is not compiled")
    modules = [(library.parent.name, library.name.split(".")[0]) for library in copy.glob("nsqd/*/*.so")]
    unit = [
        str(file)
        for folder, name in modules
        for file in Path("tests/unit/nsqd", folder).glob(f"test_{name}*.py")
    ]
    further = {
        "tests/unit/nsqd/storage": "checkpoint",
        "tests/property": "backlog_model reading recovery",
        "tests/integration/nsqd": "channels damage dead_letters dedup headers http_messages http_publish"
        " long_batches policies restart_channels tcp_answers tcp_lines tcp_publish tcp_states tcp_subscribe",
    }
    named = (f"{folder}/test_{name}.py" for folder, names in further.items() for name in names.split())
    suite(session, FAST, "-n2", "--dist=worksteal", *sorted({*unit, *named}))
    session.run(BIN / "python", "-m", "tests.fuzz", "wire_session", "--seconds", "5")


@nox.session
def newest(session: nox.Session) -> None:
    """On the newest Python: tests of syntax, imports, asyncio, TLS, options, sockets and processes."""
    found = session.run("scripts/newest_python", silent=True, stderr=None).strip()
    if not found:
        session.skip("no newer Python than that of .venv was found: stage fast has tested all")
    asked_for = subprocess.check_output([found, "-VV"], text=True) + "".join(
        Path(file).read_text() for file in ("pyproject.toml", "client/pyproject.toml", "constraints.txt")
    )
    mark = NEWEST / ".installed"
    if not mark.exists() or mark.read_text() != asked_for:
        # The pip of .venv installs there, because installing another pip takes longer than many packages.
        session.run(found, "-m", "venv", "--clear", "--without-pip", str(NEWEST))
        install = [BIN / "python", "-m", "pip", f"--python={NEWEST}/bin/python", "install", "--quiet"]
        install += ["--disable-pip-version-check", "--no-compile", "-e", "./client", "-e", ".[k8s,re2,test]"]
        if subprocess.run([*install, "--constraint", "constraints.txt"], check=False).returncode:
            session.run(*install)
        mark.write_text(asked_for)
    tests = """
        tests/architecture/test_imports.py tests/property/test_compression.py tests/unit/nsqclient/wire
        tests/unit/nsqclient/test_config.py tests/unit/nsqclient/test_threads.py tests/unit/nsqcore/http
        tests/unit/nsqcore/options tests/unit/nsqcore/process tests/unit/nsqd/server/statistics
        tests/unit/nsqd/server/test_fsync.py tests/unit/nsqd/server/test_tcp.py
        tests/integration/nsqd/test_tcp_publish.py tests/integration/nsqd/test_tls.py
        tests/integration/nsqlookupd/test_process.py tests/integration/nsqadmin/test_start.py
        tests/integration/nsqtools/test_to_nsq.py tests/integration/test_client_upgrades.py
    """
    suite(session, FAST, "-n2", "--dist=worksteal", *tests.split(), python=NEWEST / "bin" / "python")
