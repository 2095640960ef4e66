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

# source -> (reason, where its tests are)
ELSEWHERE = {
    "devcluster/ports.py": (BESIDE, f"{UNIT}/devcluster/test_cli.py"),
    "devcluster/process.py": (WIRING, "tests/integration/test_devcluster.py"),
    "devcluster/reviving.py": (WIRING, "tests/integration/test_devcluster.py"),
    "devcluster/runner.py": (WIRING, "tests/integration/test_devcluster.py"),
    "nsqadmin/access/guard.py": (PAGES, f"{ADMIN}/test_security.py"),
    "nsqadmin/api/cluster.py": (PAGES, f"{ADMIN}/test_api.py"),
    "nsqadmin/api/config.py": (PAGES, f"{ADMIN}/test_access.py"),
    "nsqadmin/api/graphite.py": (PAGES, f"{ADMIN}/test_graphite.py"),
    "nsqadmin/api/metrics.py": (PAGES, f"{ADMIN}/test_api.py"),
    "nsqadmin/changes/actions.py": (PAGES, f"{ADMIN}/test_partial_failure.py"),
    "nsqadmin/changes/desk.py": (PAGES, f"{ADMIN}/test_access.py"),
    "nsqadmin/changes/notify.py": (SOCKETS, f"{ADMIN}/test_notify.py"),
    "nsqadmin/cli.py": (WIRING, f"{ADMIN}/test_start.py"),
    "nsqadmin/collecting/answers.py": (SOCKETS, f"{ADMIN}/test_partial_failure.py"),
    "nsqadmin/collecting/cluster.py": (SOCKETS, f"{ADMIN}/test_partial_failure.py"),
    "nsqadmin/collecting/collector.py": (SOCKETS, f"{ADMIN}/test_trouble.py"),
    "nsqadmin/collecting/consumers.py": (PAGES, f"{ADMIN}/test_pages.py"),
    "nsqadmin/collecting/look.py": (PAGES, f"{ADMIN}/test_trouble.py"),
    "nsqadmin/collecting/members.py": (PAGES, f"{ADMIN}/test_trouble.py"),
    "nsqadmin/collecting/views.py": (PAGES, f"{ADMIN}/test_api.py"),
    "nsqadmin/daemon.py": (WIRING, f"{ADMIN}/test_start.py"),
    "nsqadmin/memory.py": (WIRING, "tests/browser/test_size.py"),
    "nsqadmin/pages/forms.py": (PAGES, f"{ADMIN}/test_pages.py"),
    "nsqadmin/pages/pages.py": (PAGES, f"{ADMIN}/test_pages.py"),
    "nsqadmin/pages/render.py": (PAGES, f"{ADMIN}/test_pages.py"),
    "nsqadmin/pages/static_files.py": (PAGES, f"{ADMIN}/test_pages.py"),
    "nsqadmin/routes.py": (PAGES, f"{ADMIN}/test_api.py"),
    "nsqcore/client/connection.py": (SOCKETS, "tests/integration/test_client_connection.py"),
    "nsqcore/client/consumer.py": (SOCKETS, "tests/integration/test_client_consumer.py"),
    "nsqcore/client/delivery.py": (SOCKETS, "tests/integration/test_client_handlers.py"),
    "nsqcore/client/errors.py": (NAMES, "tests/integration/test_client_bad_input.py"),
    "nsqcore/client/handling.py": (SOCKETS, "tests/integration/test_client_handlers.py"),
    "nsqcore/client/handshake.py": (SOCKETS, "tests/integration/test_client_upgrades.py"),
    "nsqcore/client/incoming.py": (BESIDE, "tests/property/test_incoming.py"),
    "nsqcore/client/producer.py": (SOCKETS, "tests/integration/test_client_producer.py"),
    "nsqcore/client/selftest.py": (WIRING, "tests/integration/test_client_selftest.py"),
    "nsqcore/client/sync.py": (SOCKETS, "tests/integration/test_client_sync.py"),
    "nsqcore/client/tls.py": (SOCKETS, "tests/integration/test_client_upgrades.py"),
    "nsqcore/cluster/http.py": (SOCKETS, "tests/integration/nsqcore/test_cluster_http.py"),
    "nsqcore/cluster/lookupd_api.py": (SOCKETS, f"{UNIT}/nsqcore/cluster/test_discovery.py"),
    "nsqcore/cluster/nsqd_api.py": (SOCKETS, "tests/integration/nsqcore/test_cluster_http.py"),
    "nsqcore/service/accepting.py": (SOCKETS, "tests/integration/test_descriptors.py"),
    "nsqcore/service/https.py": (SOCKETS, "tests/integration/test_https.py"),
    "nsqcore/service/https_options.py": (WIRING, "tests/integration/test_https.py"),
    "nsqcore/service/https_sockets.py": (SOCKETS, "tests/integration/test_https.py"),
    "nsqcore/service/kinds.py": (BESIDE, f"{UNIT}/nsqcore/service/test_options.py"),
    "nsqcore/service/metrics_on_demand.py": (WIRING, "tests/architecture/test_start.py"),
    "nsqcore/service/tls_kinds.py": (BESIDE, f"{NSQD}/test_tls.py"),
    "nsqcore/version.py": (NAMES, f"{NSQD}/test_process.py"),
    "nsqcore/wire/errors.py": (NAMES, f"{UNIT}/nsqcore/wire/test_frames.py"),
    "nsqcore/wire/message.py": (BESIDE, f"{UNIT}/nsqcore/wire/test_frames.py"),
    "nsqcore/wire/names.py": (THROUGH, f"{NSQD}/test_tcp_publish.py"),
    "nsqcore/wire/compression.py": (BESIDE, "tests/property/test_compression.py"),
    "nsqd/build.py": (WIRING, f"{NSQD}/test_process.py"),
    "nsqd/cli.py": (WIRING, f"{NSQD}/test_process.py"),
    "nsqd/data/dump.py": (FILES, f"{NSQD}/test_data_tool.py"),
    "nsqd/data/opened.py": (FILES, f"{NSQD}/test_data_tool.py"),
    "nsqd/data/repair.py": (FILES, f"{NSQD}/test_data_tool.py"),
    "nsqd/data/summary.py": (FILES, f"{NSQD}/test_data_tool.py"),
    "nsqd/data/verify.py": (FILES, f"{NSQD}/test_data_tool.py"),
    "nsqd/engine/broker.py": (THROUGH, f"{UNIT}/nsqd/engine/test_topic.py"),
    "nsqd/engine/clock.py": (BESIDE, f"{UNIT}/nsqd/storage/test_data_path.py"),
    "nsqd/engine/consumer.py": (BESIDE, f"{UNIT}/nsqd/engine/test_channel.py"),
    "nsqd/engine/consuming.py": (THROUGH, f"{UNIT}/nsqd/engine/test_session.py"),
    "nsqd/engine/limits.py": (NAMES, f"{UNIT}/nsqd/engine/test_session.py"),
    "nsqd/engine/mpub.py": (THROUGH, f"{UNIT}/nsqd/engine/test_session_batches.py"),
    "nsqd/engine/negotiation.py": (THROUGH, f"{NSQD}/test_tcp_identify.py"),
    "nsqd/engine/publishing.py": (THROUGH, f"{UNIT}/nsqd/engine/test_session_batches.py"),
    "nsqd/engine/reading.py": (THROUGH, f"{UNIT}/nsqd/engine/test_session.py"),
    "nsqd/engine/replies.py": (NAMES, f"{UNIT}/nsqd/engine/test_session.py"),
    "nsqd/engine/states.py": (THROUGH, f"{NSQD}/test_tcp_states.py"),
    "nsqd/options.py": (WIRING, f"{NSQD}/test_process.py"),
    "nsqd/server/auth.py": (SOCKETS, f"{NSQD}/test_auth.py"),
    "nsqd/server/changes.py": (WIRING, f"{NSQD}/test_restart.py"),
    "nsqd/server/checkpoints.py": (WIRING, f"{NSQD}/test_restart.py"),
    "nsqd/server/daemon.py": (WIRING, f"{NSQD}/test_process.py"),
    "nsqd/server/http.py": (SOCKETS, f"{NSQD}/test_http_protocol.py"),
    "nsqd/server/http_auth.py": (SOCKETS, f"{NSQD}/test_http_auth.py"),
    "nsqd/server/http_drain.py": (SOCKETS, f"{NSQD}/test_drain.py"),
    "nsqd/server/http_front.py": (SOCKETS, f"{NSQD}/test_http_front.py"),
    "nsqd/server/http_info.py": (SOCKETS, f"{NSQD}/test_http_info.py"),
    "nsqd/server/http_log.py": (SOCKETS, f"{NSQD}/test_http_log.py"),
    "nsqd/server/http_publish.py": (SOCKETS, f"{NSQD}/test_http_publish.py"),
    "nsqd/server/http_topics.py": (SOCKETS, f"{NSQD}/test_http_topics.py"),
    "nsqd/server/layers.py": (SOCKETS, f"{NSQD}/test_tcp_compression.py"),
    "nsqd/server/lookup_connection.py": (SOCKETS, f"{NSQD}/test_lookup_peer.py"),
    "nsqd/server/lookup_peer.py": (SOCKETS, f"{NSQD}/test_lookup_peer.py"),
    "nsqd/server/lookup_session.py": (SOCKETS, f"{NSQD}/test_lookup_peer.py"),
    "nsqd/server/metrics.py": (SOCKETS, f"{NSQD}/test_http_info.py"),
    "nsqd/server/opening.py": (WIRING, "tests/architecture/test_start.py"),
    "nsqd/server/stats.py": (SOCKETS, f"{NSQD}/test_http_info.py"),
    "nsqd/server/tcp.py": (SOCKETS, f"{NSQD}/test_tcp_backpressure.py"),
    "nsqd/server/tls.py": (SOCKETS, f"{NSQD}/test_tls.py"),
    "nsqd/storage/diskqueue.py": (BESIDE, f"{UNIT}/nsqd/storage/test_adopt.py"),
    "nsqd/storage/stored_log.py": (BESIDE, f"{UNIT}/nsqd/storage/test_topic_store.py"),
    "nsqlookupd/cli.py": (WIRING, "tests/integration/nsqlookupd/test_process.py"),
    "nsqlookupd/daemon.py": (WIRING, "tests/integration/nsqlookupd/test_process.py"),
    "nsqlookupd/http.py": (SOCKETS, "tests/integration/nsqlookupd/test_http.py"),
    "nsqlookupd/metrics.py": (SOCKETS, "tests/integration/nsqlookupd/test_http.py"),
    "nsqlookupd/neighbours.py": (SOCKETS, "tests/integration/nsqlookupd/test_ready.py"),
    "nsqlookupd/opening.py": (WIRING, "tests/architecture/test_start.py"),
    "nsqlookupd/options.py": (WIRING, "tests/integration/nsqlookupd/test_process.py"),
    "nsqlookupd/tcp.py": (SOCKETS, "tests/integration/nsqlookupd/test_tcp.py"),
    "nsqtools/blocking.py": (WIRING, f"{TOOLS}/test_to_nsq.py"),
    "nsqtools/consumers.py": (SOCKETS, f"{TOOLS}/test_nsq_to_nsq.py"),
    "nsqtools/nsq_stat/cli.py": (WIRING, f"{TOOLS}/test_nsq_stat.py"),
    "nsqtools/nsq_stat/options.py": (WIRING, f"{TOOLS}/test_refusals.py"),
    "nsqtools/nsq_stat/rounds.py": (SOCKETS, f"{TOOLS}/test_nsq_stat.py"),
    "nsqtools/nsq_tail/cli.py": (WIRING, f"{TOOLS}/test_nsq_tail.py"),
    "nsqtools/nsq_tail/options.py": (WIRING, f"{TOOLS}/test_refusals.py"),
    "nsqtools/nsq_tail/printer.py": (SOCKETS, f"{TOOLS}/test_nsq_tail.py"),
    "nsqtools/nsq_to_file/cli.py": (WIRING, f"{TOOLS}/test_nsq_to_file.py"),
    "nsqtools/nsq_to_file/options.py": (WIRING, f"{TOOLS}/test_refusals.py"),
    "nsqtools/nsq_to_file/topic_writer.py": (SOCKETS, f"{TOOLS}/test_nsq_to_file.py"),
    "nsqtools/nsq_to_file/topics.py": (SOCKETS, f"{TOOLS}/test_nsq_to_file.py"),
    "nsqtools/nsq_to_file/writing.py": (FILES, "tests/property/test_archive_survives.py"),
    "nsqtools/nsq_to_http/cli.py": (WIRING, f"{TOOLS}/test_nsq_to_http.py"),
    "nsqtools/nsq_to_http/options.py": (WIRING, f"{TOOLS}/test_refusals.py"),
    "nsqtools/nsq_to_http/routing.py": (SOCKETS, f"{TOOLS}/test_nsq_to_http.py"),
    "nsqtools/nsq_to_http/sending.py": (SOCKETS, f"{TOOLS}/test_nsq_to_http.py"),
    "nsqtools/nsq_to_nsq/cli.py": (WIRING, f"{TOOLS}/test_nsq_to_nsq.py"),
    "nsqtools/nsq_to_nsq/copying.py": (SOCKETS, f"{TOOLS}/test_nsq_to_nsq.py"),
    "nsqtools/nsq_to_nsq/options.py": (WIRING, f"{TOOLS}/test_refusals.py"),
    "nsqtools/options.py": (WIRING, f"{TOOLS}/test_refusals.py"),
    "nsqtools/output.py": (SOCKETS, f"{TOOLS}/test_nsq_tail.py"),
    "nsqtools/process.py": (WIRING, f"{TOOLS}/test_to_nsq.py"),
    "nsqtools/timed.py": (BESIDE, f"{UNIT}/nsqtools/test_timing.py"),
    "nsqtools/to_nsq/cli.py": (WIRING, f"{TOOLS}/test_to_nsq.py"),
    "nsqtools/to_nsq/options.py": (WIRING, f"{TOOLS}/test_refusals.py"),
    "nsqtools/to_nsq/publishing.py": (SOCKETS, f"{TOOLS}/test_to_nsq.py"),
    "pipelines/jobs/belonging.py": (WIRING, "tests/pipelines/test_archive.py"),
    "pipelines/jobs/run.py": (WIRING, "tests/pipelines/test_archive.py"),
    "pipelines/jobs/session.py": (WIRING, "tests/pipelines/test_archive.py"),
    "pipelines/parquet/source.py": (WIRING, "tests/pipelines/test_archive_survives_kill.py"),
    "pipelines/source/batch_reader.py": (WIRING, "tests/pipelines/test_spark.py"),
    "pipelines/source/cluster.py": (SOCKETS, "tests/pipelines/test_stream_discovery.py"),
    "pipelines/source/errors.py": (NAMES, "tests/pipelines/test_options.py"),
    "pipelines/source/log_reader.py": (SOCKETS, "tests/pipelines/test_stream_loss.py"),
    "pipelines/source/source.py": (WIRING, "tests/pipelines/test_spark.py"),
    "pipelines/transforms/by_hour.py": (WIRING, "tests/pipelines/test_archive.py"),
}


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
    assert mirror(source).exists() or source in ELSEWHERE, f"write {mirror(source).relative_to(ROOT)}"


@pytest.mark.parametrize("source", ELSEWHERE)
def test_a_reason_is_for_a_file_that_is_there_and_has_no_mirror(source):
    assert (ROOT / source).exists()
    assert not mirror(source).exists()


@pytest.mark.parametrize("tests", sorted({tests for _, tests in ELSEWHERE.values()}))
def test_the_tests_that_lie_elsewhere_are_there(tests):
    assert "def test_" in (ROOT / tests).read_text(encoding="utf-8")
