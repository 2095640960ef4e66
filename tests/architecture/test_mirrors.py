"""Every source file has its mirror below tests/, or a reason why its tests lie elsewhere.

The mirror of ``nsqd/engine/channel.py`` is ``tests/unit/nsqd/engine/test_channel.py``.
"""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("nsqcore", "nsqd", "nsqlookupd", "nsqadmin", "nsqtools", "devcluster", "pipelines")

SOCKETS = "it speaks to a peer, and a fake of the peer would only repeat what we believe of it"
WIRING = "it joins other parts, and only a running process shows whether they are joined"
PAGES = "what matters is the page or the JSON that comes out, so it is asked over HTTP"
BESIDE = "it is one half of a behaviour whose tests lie beside the other half"
THROUGH = "the session is its only door, and clients reach it by commands"
NAMES = "it has names and no behaviour; who uses them is tested"
FILES = "it is about files as they lie in a folder, so the command runs on real ones"

NSQD, TOOLS = "tests/integration/nsqd", "tests/integration/nsqtools"
ADMIN, UNIT = "tests/integration/nsqadmin", "tests/unit"

# reason -> tests -> what they test
ELSEWHERE = {
    SOCKETS: {
        f"{ADMIN}/test_notify.py": ["nsqadmin/changes/notify.py"],
        f"{ADMIN}/test_partial_failure.py": [
            "nsqadmin/collecting/answers.py",
            "nsqadmin/collecting/cluster.py",
        ],
        f"{ADMIN}/test_trouble.py": ["nsqadmin/collecting/collector.py"],
        "tests/integration/nsqcore/test_cluster_http.py": [
            "nsqcore/cluster/http.py",
            "nsqcore/cluster/nsqd_api.py",
        ],
        f"{NSQD}/test_auth.py": ["nsqd/server/auth.py"],
        f"{NSQD}/test_drain.py": ["nsqd/server/http_drain.py"],
        f"{NSQD}/test_http_auth.py": ["nsqd/server/http_auth.py"],
        f"{NSQD}/test_http_front.py": ["nsqd/server/http_front.py"],
        f"{NSQD}/test_http_info.py": [
            "nsqd/server/http_info.py",
            "nsqd/server/metrics.py",
            "nsqd/server/stats.py",
        ],
        f"{NSQD}/test_http_log.py": ["nsqd/server/http_log.py"],
        f"{NSQD}/test_http_protocol.py": ["nsqd/server/http.py"],
        f"{NSQD}/test_http_publish.py": ["nsqd/server/http_publish.py"],
        f"{NSQD}/test_http_topics.py": ["nsqd/server/http_topics.py"],
        f"{NSQD}/test_lookup_peer.py": [
            "nsqd/server/lookup_connection.py",
            "nsqd/server/lookup_peer.py",
            "nsqd/server/lookup_session.py",
        ],
        f"{NSQD}/test_tcp_backpressure.py": ["nsqd/server/tcp.py"],
        f"{NSQD}/test_tcp_compression.py": ["nsqd/server/layers.py"],
        f"{NSQD}/test_tls.py": ["nsqd/server/tls.py"],
        "tests/integration/nsqlookupd/test_http.py": ["nsqlookupd/http.py", "nsqlookupd/metrics.py"],
        "tests/integration/nsqlookupd/test_ready.py": ["nsqlookupd/neighbours.py"],
        "tests/integration/nsqlookupd/test_tcp.py": ["nsqlookupd/tcp.py"],
        f"{TOOLS}/test_nsq_stat.py": ["nsqtools/nsq_stat/rounds.py"],
        f"{TOOLS}/test_nsq_tail.py": ["nsqtools/nsq_tail/printer.py", "nsqtools/output.py"],
        f"{TOOLS}/test_nsq_to_file.py": [
            "nsqtools/nsq_to_file/topic_writer.py",
            "nsqtools/nsq_to_file/topics.py",
        ],
        f"{TOOLS}/test_nsq_to_http.py": [
            "nsqtools/nsq_to_http/routing.py",
            "nsqtools/nsq_to_http/sending.py",
        ],
        f"{TOOLS}/test_nsq_to_nsq.py": ["nsqtools/consumers.py", "nsqtools/nsq_to_nsq/copying.py"],
        f"{TOOLS}/test_to_nsq.py": ["nsqtools/to_nsq/publishing.py"],
        "tests/integration/test_client_connection.py": ["nsqcore/client/connection.py"],
        "tests/integration/test_client_consumer.py": ["nsqcore/client/consumer.py"],
        "tests/integration/test_client_handlers.py": [
            "nsqcore/client/delivery.py",
            "nsqcore/client/handling.py",
        ],
        "tests/integration/test_client_producer.py": ["nsqcore/client/producer.py"],
        "tests/integration/test_client_sync.py": ["nsqcore/client/sync.py"],
        "tests/integration/test_client_upgrades.py": ["nsqcore/client/handshake.py", "nsqcore/client/tls.py"],
        "tests/integration/test_descriptors.py": ["nsqcore/service/accepting.py"],
        "tests/integration/test_https.py": ["nsqcore/service/https.py", "nsqcore/service/https_sockets.py"],
        "tests/pipelines/test_stream_discovery.py": ["pipelines/source/cluster.py"],
        "tests/pipelines/test_stream_loss.py": ["pipelines/source/log_reader.py"],
        f"{UNIT}/nsqcore/cluster/test_discovery.py": ["nsqcore/cluster/lookupd_api.py"],
    },
    WIRING: {
        "tests/architecture/test_start.py": [
            "nsqcore/service/metrics_on_demand.py",
            "nsqd/server/opening.py",
            "nsqlookupd/opening.py",
        ],
        "tests/browser/test_size.py": ["nsqadmin/memory.py"],
        f"{ADMIN}/test_start.py": ["nsqadmin/cli.py", "nsqadmin/daemon.py"],
        f"{NSQD}/test_process.py": [
            "nsqd/build.py",
            "nsqd/cli.py",
            "nsqd/options.py",
            "nsqd/server/daemon.py",
        ],
        f"{NSQD}/test_restart.py": ["nsqd/server/changes.py", "nsqd/server/checkpoints.py"],
        "tests/integration/nsqlookupd/test_process.py": [
            "nsqlookupd/cli.py",
            "nsqlookupd/daemon.py",
            "nsqlookupd/options.py",
        ],
        f"{TOOLS}/test_nsq_stat.py": ["nsqtools/nsq_stat/cli.py"],
        f"{TOOLS}/test_nsq_tail.py": ["nsqtools/nsq_tail/cli.py"],
        f"{TOOLS}/test_nsq_to_file.py": ["nsqtools/nsq_to_file/cli.py"],
        f"{TOOLS}/test_nsq_to_http.py": ["nsqtools/nsq_to_http/cli.py"],
        f"{TOOLS}/test_nsq_to_nsq.py": ["nsqtools/nsq_to_nsq/cli.py"],
        f"{TOOLS}/test_refusals.py": [
            "nsqtools/nsq_stat/options.py",
            "nsqtools/nsq_tail/options.py",
            "nsqtools/nsq_to_file/options.py",
            "nsqtools/nsq_to_http/options.py",
            "nsqtools/nsq_to_nsq/options.py",
            "nsqtools/options.py",
            "nsqtools/to_nsq/options.py",
        ],
        f"{TOOLS}/test_to_nsq.py": ["nsqtools/blocking.py", "nsqtools/process.py", "nsqtools/to_nsq/cli.py"],
        "tests/integration/test_client_selftest.py": ["nsqcore/client/selftest.py"],
        "tests/integration/test_devcluster.py": [
            "devcluster/process.py",
            "devcluster/reviving.py",
            "devcluster/runner.py",
        ],
        "tests/integration/test_https.py": ["nsqcore/service/https_options.py"],
        "tests/pipelines/test_archive.py": [
            "pipelines/jobs/belonging.py",
            "pipelines/jobs/run.py",
            "pipelines/jobs/session.py",
            "pipelines/transforms/by_hour.py",
        ],
        "tests/pipelines/test_archive_survives_kill.py": ["pipelines/parquet/source.py"],
        "tests/pipelines/test_spark.py": ["pipelines/source/batch_reader.py", "pipelines/source/source.py"],
    },
    PAGES: {
        f"{ADMIN}/test_access.py": ["nsqadmin/api/config.py", "nsqadmin/changes/desk.py"],
        f"{ADMIN}/test_api.py": [
            "nsqadmin/api/cluster.py",
            "nsqadmin/api/metrics.py",
            "nsqadmin/collecting/views.py",
            "nsqadmin/routes.py",
        ],
        f"{ADMIN}/test_graphite.py": ["nsqadmin/api/graphite.py"],
        f"{ADMIN}/test_pages.py": [
            "nsqadmin/collecting/consumers.py",
            "nsqadmin/pages/forms.py",
            "nsqadmin/pages/pages.py",
            "nsqadmin/pages/render.py",
            "nsqadmin/pages/static_files.py",
        ],
        f"{ADMIN}/test_partial_failure.py": ["nsqadmin/changes/actions.py"],
        f"{ADMIN}/test_security.py": ["nsqadmin/access/guard.py"],
        f"{ADMIN}/test_trouble.py": ["nsqadmin/collecting/look.py", "nsqadmin/collecting/members.py"],
    },
    BESIDE: {
        f"{NSQD}/test_tls.py": ["nsqcore/service/tls_kinds.py"],
        "tests/property/test_compression.py": ["nsqcore/wire/compression.py"],
        "tests/property/test_incoming.py": ["nsqcore/client/incoming.py"],
        f"{UNIT}/devcluster/test_cli.py": ["devcluster/ports.py"],
        f"{UNIT}/nsqcore/service/test_options.py": ["nsqcore/service/kinds.py"],
        f"{UNIT}/nsqcore/wire/test_frames.py": ["nsqcore/wire/message.py"],
        f"{UNIT}/nsqd/engine/test_channel.py": ["nsqd/engine/consumer.py"],
        f"{UNIT}/nsqd/storage/test_adopt.py": ["nsqd/storage/diskqueue.py"],
        f"{UNIT}/nsqd/storage/test_data_path.py": ["nsqd/engine/clock.py"],
        f"{UNIT}/nsqd/storage/test_topic_store.py": ["nsqd/storage/stored_log.py"],
        f"{UNIT}/nsqtools/test_timing.py": ["nsqtools/timed.py"],
    },
    THROUGH: {
        f"{NSQD}/test_tcp_identify.py": ["nsqd/engine/negotiation.py"],
        f"{NSQD}/test_tcp_publish.py": ["nsqcore/wire/names.py"],
        f"{NSQD}/test_tcp_states.py": ["nsqd/engine/states.py"],
        f"{UNIT}/nsqd/engine/test_session.py": ["nsqd/engine/consuming.py", "nsqd/engine/reading.py"],
        f"{UNIT}/nsqd/engine/test_session_batches.py": ["nsqd/engine/mpub.py", "nsqd/engine/publishing.py"],
        f"{UNIT}/nsqd/engine/test_topic.py": ["nsqd/engine/broker.py"],
    },
    NAMES: {
        f"{NSQD}/test_process.py": ["nsqcore/version.py"],
        "tests/integration/test_client_bad_input.py": ["nsqcore/client/errors.py"],
        "tests/pipelines/test_options.py": ["pipelines/source/errors.py"],
        f"{UNIT}/nsqcore/wire/test_frames.py": ["nsqcore/wire/errors.py"],
        f"{UNIT}/nsqd/engine/test_session.py": ["nsqd/engine/limits.py", "nsqd/engine/replies.py"],
    },
    FILES: {
        f"{NSQD}/test_data_tool.py": [
            "nsqd/data/dump.py",
            "nsqd/data/opened.py",
            "nsqd/data/repair.py",
            "nsqd/data/summary.py",
            "nsqd/data/verify.py",
        ],
        "tests/property/test_archive_survives.py": ["nsqtools/nsq_to_file/writing.py"],
    },
}
SOURCES_ELSEWHERE = [
    source for by_tests in ELSEWHERE.values() for tested in by_tests.values() for source in tested
]
TESTS_ELSEWHERE = sorted({tests for by_tests in ELSEWHERE.values() for tests in by_tests})


def sources() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", *(f"{package}/*.py" for package in PACKAGES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [name for name in listed if not name.endswith(("/__init__.py", "/__main__.py"))]


def mirror(source: str) -> Path:
    path = Path(source)
    folder = ROOT / "tests" / ("pipelines" if path.parts[0] == "pipelines" else Path("unit", path.parent))
    return folder / f"test_{path.name}"


@pytest.mark.parametrize("source", sources())
def test_every_source_file_has_its_mirror_or_a_reason(source):
    assert mirror(source).exists() or source in SOURCES_ELSEWHERE, f"write {mirror(source).relative_to(ROOT)}"


@pytest.mark.parametrize("source", SOURCES_ELSEWHERE)
def test_a_reason_is_for_a_file_that_is_there_and_has_no_mirror(source):
    assert (ROOT / source).exists()
    assert not mirror(source).exists()


@pytest.mark.parametrize("tests", TESTS_ELSEWHERE)
def test_the_tests_that_lie_elsewhere_are_there(tests):
    assert "def test_" in (ROOT / tests).read_text(encoding="utf-8")
