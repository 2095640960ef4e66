"""Every source file has its mirror below tests/, or a reason why its tests lie elsewhere.

The mirror of ``nsqd/engine/channel.py`` is ``tests/unit/nsqd/engine/test_channel.py``.
"""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "client/nsqclient",
    "nsqcore",
    "nsqd",
    "nsqlookupd",
    "nsqadmin",
    "nsqtools",
    "devcluster",
    "load",
    "pipelines",
)

SOCKETS = "it speaks to a peer, and a fake of the peer would only repeat what we believe of it"
WIRING = "it joins other parts, and only a running process shows whether they are joined"
PAGES = "what matters is the page or the JSON that comes out, so it is asked over HTTP"
BESIDE = "it is one half of a behaviour whose tests lie beside the other half"
THROUGH = "the session is its only door, and clients reach it by commands"
NAMES = "it has names and no behaviour; who uses them is tested"
FILES = "it is about files as they lie in a folder, so the command runs on real ones"
DESCRIPTION = "it is compared with what the daemon answers, so that is asked over HTTP"

NSQD, TOOLS = "tests/integration/nsqd", "tests/integration/nsqtools"
ADMIN, UNIT = "tests/integration/nsqadmin", "tests/unit"

# reason -> tests -> the files that they test
ELSEWHERE = {
    DESCRIPTION: {
        f"{ADMIN}/test_openapi.py": ["nsqadmin/openapi.py"],
        "tests/integration/nsqlookupd/test_openapi.py": ["nsqlookupd/openapi.py"],
    },
    SOCKETS: {
        f"{ADMIN}/test_notify.py": ["nsqadmin/changes/notify.py"],
        f"{ADMIN}/test_messages.py": [
            "nsqadmin/changes/messages.py",
            "nsqadmin/collecting/messages.py",
            "nsqadmin/pages/message_effects.py",
            "nsqadmin/pages/message_forms.py",
            "nsqadmin/pages/messages.py",
            "nsqcore/cluster/nsqd_messages.py",
        ],
        f"{ADMIN}/test_policies.py": ["nsqadmin/changes/policies.py", "nsqadmin/pages/policies.py"],
        f"{ADMIN}/test_partial_failure.py": [
            "nsqadmin/collecting/answers.py",
            "nsqadmin/collecting/cluster.py",
            "nsqadmin/collecting/known.py",
            "nsqadmin/collecting/queues.py",
        ],
        f"{ADMIN}/test_trouble.py": [
            "nsqadmin/collecting/collector.py",
            "nsqadmin/collecting/membership.py",
            "nsqadmin/collecting/work.py",
        ],
        f"{ADMIN}/test_figures_stay_true.py": [
            "nsqadmin/collecting/adding.py",
            "nsqadmin/collecting/asking.py",
            "nsqadmin/collecting/registrations.py",
        ],
        f"{ADMIN}/test_copies.py": ["nsqadmin/collecting/copies.py", "nsqcore/cluster/copies.py"],
        f"{TOOLS}/test_counted_load.py": ["nsqtools/counted_load.py"],
        "tests/integration/nsqcore/test_cluster_http.py": [
            "nsqcore/cluster/http.py",
            "nsqcore/cluster/nsqd_api.py",
        ],
        f"{NSQD}/test_auth.py": ["nsqd/server/auth.py"],
        f"{NSQD}/test_carried.py": [
            "nsqd/server/replication/asking.py",
            "nsqd/server/replication/carrying.py",
            "nsqd/server/replication/standing_in.py",
        ],
        f"{NSQD}/test_hand_over.py": [
            "nsqd/data/hand_over.py",
            "nsqd/server/replication/departure.py",
            "nsqd/server/replication/left_behind.py",
        ],
        f"{NSQD}/test_copies.py": [
            "nsqd/server/figures/copies.py",
            "nsqd/server/http/carried.py",
            "nsqd/server/replication/assembly.py",
            "nsqd/server/replication/copying.py",
            "nsqd/server/replication/shown.py",
            "nsqd/server/replication/wanted.py",
        ],
        f"{NSQD}/test_drain.py": ["nsqd/server/http/drain.py"],
        f"{NSQD}/test_http_auth.py": ["nsqd/server/http/auth.py"],
        f"{NSQD}/test_http_front.py": ["nsqd/server/http/front.py"],
        f"{NSQD}/test_http_info.py": [
            "nsqd/server/http/info.py",
            "nsqd/server/figures/metrics.py",
            "nsqd/server/figures/stats.py",
        ],
        f"{NSQD}/test_http_log.py": ["nsqd/server/http/log.py"],
        f"{NSQD}/test_http_handling.py": ["nsqd/server/http/handling.py"],
        f"{NSQD}/test_http_messages.py": ["nsqd/server/messages/finding.py"],
        f"{NSQD}/test_http_protocol.py": ["nsqd/server/http/routes.py"],
        f"{NSQD}/test_lookup_peer.py": [
            "nsqd/server/lookup/connection.py",
            "nsqd/server/lookup/peer.py",
            "nsqd/server/lookup/session.py",
        ],
        f"{NSQD}/test_policies.py": ["nsqd/server/http/policies.py", "nsqd/server/policies.py"],
        f"{NSQD}/test_tcp_compression.py": ["nsqd/server/layers.py"],
        f"{NSQD}/test_tls.py": ["nsqd/server/tls.py"],
        "tests/integration/nsqlookupd/test_http.py": ["nsqlookupd/http.py", "nsqlookupd/metrics.py"],
        "tests/integration/nsqlookupd/test_ready.py": ["nsqlookupd/neighbours.py"],
        "tests/integration/nsqlookupd/test_tcp.py": ["nsqlookupd/tcp.py"],
        f"{TOOLS}/test_nsq_channel.py": ["nsqtools/nsq_channel/acting.py"],
        f"{TOOLS}/test_nsq_peek.py": ["nsqtools/asking.py", "nsqtools/nsq_peek/reading.py"],
        f"{TOOLS}/test_nsq_stat.py": ["nsqtools/nsq_stat/rounds.py"],
        f"{TOOLS}/test_nsq_tail.py": ["nsqtools/nsq_tail/printer.py"],
        f"{TOOLS}/test_nsq_to_file.py": [
            "nsqtools/nsq_to_file/topics.py",
        ],
        f"{TOOLS}/test_nsq_to_http.py": [
            "nsqtools/nsq_to_http/routing.py",
            "nsqtools/nsq_to_http/sending.py",
        ],
        f"{TOOLS}/test_nsq_to_nsq.py": ["nsqtools/consumers.py", "nsqtools/nsq_to_nsq/copying.py"],
        f"{TOOLS}/test_to_nsq.py": ["nsqtools/to_nsq/publishing.py"],
        "tests/integration/test_client_connection.py": [
            "client/nsqclient/connection.py",
            "client/nsqclient/listener.py",
            "client/nsqclient/strangers.py",
        ],
        "tests/integration/test_client_consumer.py": [
            "client/nsqclient/consumer.py",
            "client/nsqclient/draining.py",
            "client/nsqclient/subscriptions.py",
        ],
        "tests/integration/test_client_faults.py": [
            "client/nsqclient/net/unsent.py",
            "client/nsqclient/watchdog.py",
        ],
        "tests/integration/test_client_features.py": [
            "client/nsqclient/dead_letters.py",
            "client/nsqclient/middleware.py",
            "client/nsqclient/passage.py",
            "client/nsqclient/signals.py",
            "client/nsqclient/testing/server.py",
        ],
        "tests/integration/test_client_handlers.py": [
            "client/nsqclient/handling.py",
            "client/nsqclient/in_threads.py",
            "client/nsqclient/jobs.py",
            "client/nsqclient/thread_safe.py",
            "client/nsqclient/tasks.py",
            "client/nsqclient/verdicts.py",
        ],
        "tests/integration/test_client_middlewares.py": [
            "client/nsqclient/middlewares/opentelemetry.py",
            "client/nsqclient/middlewares/prometheus.py",
        ],
        "tests/integration/test_client_faststream.py": [
            f"client/nsqclient/integrations/faststream/{name}.py"
            for name in [
                "annotations",
                "broker",
                "config",
                "message",
                "publishing",
                "routing",
                "subscribing",
                "testing",
            ]
        ],
        "tests/integration/test_client_taskiq.py": ["client/nsqclient/integrations/taskiq.py"],
        "tests/integration/test_client_lookups.py": [
            "client/nsqclient/directory.py",
            "client/nsqclient/http.py",
            "client/nsqclient/lookups.py",
        ],
        "tests/integration/test_client_producer.py": [
            f"client/nsqclient/{name}.py"
            for name in ("dispatch", "full_topics", "links", "producer", "publications")
        ],
        "tests/integration/test_client_sync.py": [
            f"client/nsqclient/sync/{name}.py" for name in ("consumer", "intake", "producer")
        ],
        "tests/integration/test_client_upgrades.py": [
            "client/nsqclient/handshake.py",
            "client/nsqclient/wire/negotiated.py",
            "client/nsqclient/tls.py",
        ],
        "tests/integration/load/test_runs.py": [
            f"load/{name}.py" for name in ("access", "connection", "finding", "reader", "users")
        ],
        "tests/integration/test_https.py": ["nsqcore/http/https.py", "nsqcore/http/https_sockets.py"],
        "tests/pipelines/test_stream_discovery.py": [
            "pipelines/pyspark_nsq/source/asking.py",
            "pipelines/pyspark_nsq/source/cluster.py",
            "pipelines/pyspark_nsq/source/discovery.py",
        ],
        "tests/pipelines/test_publisher.py": ["pipelines/pyspark_nsq/source/nodes.py"],
        "tests/pipelines/test_stream_loss.py": ["pipelines/pyspark_nsq/source/log_reader.py"],
        "tests/pipelines/test_secured.py": ["pipelines/pyspark_nsq/source/secret.py"],
        f"{UNIT}/nsqcore/cluster/test_discovery.py": ["nsqcore/cluster/lookupd_api.py"],
    },
    WIRING: {
        "tests/architecture/test_start.py": [
            "nsqcore/http/metrics_on_demand.py",
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
        "tests/integration/nsqlookupd/test_process.py": [
            "nsqlookupd/cli.py",
            "nsqlookupd/daemon.py",
            "nsqlookupd/options.py",
        ],
        f"{TOOLS}/test_nsq_channel.py": ["nsqtools/nsq_channel/cli.py"],
        f"{TOOLS}/test_nsq_peek.py": ["nsqtools/nsq_peek/cli.py", "nsqtools/nsq_peek/showing.py"],
        f"{TOOLS}/test_nsq_stat.py": ["nsqtools/nsq_stat/cli.py", "nsqtools/nsq_stat/watching.py"],
        f"{TOOLS}/test_nsq_tail.py": ["nsqtools/nsq_tail/cli.py", "nsqtools/nsq_tail/tailing.py"],
        f"{TOOLS}/test_nsq_to_file.py": ["nsqtools/nsq_to_file/archiving.py", "nsqtools/nsq_to_file/cli.py"],
        f"{TOOLS}/test_nsq_to_http.py": ["nsqtools/nsq_to_http/cli.py", "nsqtools/nsq_to_http/consuming.py"],
        f"{TOOLS}/test_nsq_to_nsq.py": ["nsqtools/nsq_to_nsq/cli.py"],
        f"{TOOLS}/test_refusals.py": [
            "nsqtools/cluster_options.py",
            "nsqtools/nsq_channel/options.py",
            "nsqtools/nsq_peek/options.py",
            "nsqtools/nsq_stat/options.py",
            "nsqtools/nsq_tail/options.py",
            "nsqtools/nsq_to_file/options.py",
            "nsqtools/nsq_to_http/headers.py",
            "nsqtools/nsq_to_http/options.py",
            "nsqtools/nsq_to_nsq/options.py",
            "nsqtools/options.py",
            "nsqtools/to_nsq/options.py",
        ],
        f"{TOOLS}/test_to_nsq.py": ["nsqtools/blocking.py", "nsqtools/process.py", "nsqtools/to_nsq/cli.py"],
        "tests/integration/test_client_selftest.py": ["nsqtools/selftest.py"],
        "tests/integration/test_devcluster.py": [
            "devcluster/process.py",
            "devcluster/reviving.py",
            "devcluster/runner.py",
        ],
        f"{ADMIN}/test_people.py": ["devcluster/provider.py"],
        "tests/integration/load/test_runs.py": [
            f"load/{name}.py"
            for name in ("crew", "keeper", "rest", "running", "started", "swarm", "watching")
        ],
        "tests/integration/load/test_refusals.py": ["load/cli.py", "load/preparing.py"],
        "tests/integration/test_https.py": ["nsqcore/options/https_options.py"],
        "tests/pipelines/test_archive.py": [
            "pipelines/pyspark_nsq/jobs/belonging.py",
            "pipelines/pyspark_nsq/jobs/running.py",
            "pipelines/pyspark_nsq/jobs/session.py",
            "pipelines/pyspark_nsq/jobs/signals.py",
        ],
        "tests/pipelines/test_cookbook.py": [
            "pipelines/cookbook/dead_letters.py",
            "pipelines/cookbook/into_a_database.py",
            "pipelines/cookbook/join.py",
            "pipelines/cookbook/json_to_columns.py",
            "pipelines/cookbook/lag.py",
            "pipelines/cookbook/windows.py",
            "pipelines/cookbook/write_back.py",
        ],
        "tests/pipelines/test_archive_survives_kill.py": [
            "pipelines/pyspark_nsq/parquet/reader.py",
            "pipelines/pyspark_nsq/parquet/source.py",
        ],
        "tests/pipelines/test_spark.py": [
            "pipelines/pyspark_nsq/sink/writer.py",
            "pipelines/pyspark_nsq/source/batch_reader.py",
            "pipelines/pyspark_nsq/source/one_sentence.py",
            "pipelines/pyspark_nsq/source/refused.py",
            "pipelines/pyspark_nsq/source/source.py",
        ],
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
            "nsqadmin/pages/columns.py",
            "nsqadmin/pages/forms.py",
            "nsqadmin/pages/audit.py",
            "nsqadmin/pages/nodes.py",
            "nsqadmin/pages/overview.py",
            "nsqadmin/pages/replies.py",
            "nsqadmin/pages/topics.py",
            "nsqadmin/pages/render.py",
            "nsqadmin/pages/static_files.py",
        ],
        f"{ADMIN}/test_partial_failure.py": ["nsqadmin/changes/actions.py"],
        f"{ADMIN}/test_security.py": ["nsqadmin/access/guard.py"],
        f"{ADMIN}/test_bulk.py": ["nsqadmin/pages/bulk.py"],
        f"{ADMIN}/test_people.py": ["nsqadmin/access/openid.py", "nsqadmin/pages/sign_in.py"],
        f"{ADMIN}/test_history.py": ["nsqadmin/history/chronicle.py", "nsqadmin/pages/courses.py"],
        f"{ADMIN}/test_trouble.py": ["nsqadmin/collecting/look.py", "nsqadmin/collecting/members.py"],
    },
    BESIDE: {
        f"{UNIT}/nsqd/engine/test_topic.py": ["nsqd/engine/staging.py"],
        f"{NSQD}/test_tls.py": ["nsqcore/options/tls_kinds.py"],
        "tests/property/test_compression.py": ["client/nsqclient/wire/compression.py"],
        "tests/property/test_incoming.py": ["client/nsqclient/incoming.py"],
        f"{UNIT}/devcluster/test_cli.py": ["devcluster/ports.py"],
        f"{UNIT}/nsqcore/options/test_options.py": ["nsqcore/options/kinds.py"],
        f"{UNIT}/nsqclient/wire/test_frames.py": ["client/nsqclient/wire/message.py"],
        f"{UNIT}/nsqcore/http/test_server.py": ["nsqcore/http/connection.py"],
        f"{UNIT}/nsqd/server/test_fsync.py": ["nsqd/server/held.py"],
        f"{UNIT}/nsqd/server/test_turn.py": ["nsqd/server/deadlines.py"],
        f"{UNIT}/nsqd/engine/test_channel.py": [
            "nsqd/engine/answered.py",
            "nsqd/engine/credit.py",
            "nsqd/engine/delivering.py",
        ],
        f"{UNIT}/nsqd/engine/test_notes.py": ["nsqd/engine/replay.py"],
        "tests/integration/test_client_fixture.py": ["client/nsqclient/testing/fixture.py"],
        f"{UNIT}/nsqd/storage/takeover/test_adopt.py": ["nsqd/storage/takeover/diskqueue.py"],
        f"{UNIT}/nsqd/storage/test_data_path.py": ["nsqd/engine/clock.py"],
        f"{UNIT}/nsqd/log/test_compaction.py": ["nsqd/engine/state.py"],
        f"{UNIT}/nsqd/log/test_frames.py": ["nsqd/log/encoder.py"],
        f"{UNIT}/nsqd/log/test_recovery.py": ["nsqd/log/happened.py"],
        f"{UNIT}/nsqd/storage/test_checkpoint.py": ["nsqd/engine/journal.py"],
        f"{UNIT}/nsqd/replication/test_copied_topics.py": ["nsqd/replication/copies.py"],
        f"{UNIT}/nsqd/replication/test_carrier.py": ["nsqd/replication/carried_copy.py"],
        f"{UNIT}/nsqd/replication/test_fellowship.py": [
            "nsqd/replication/fellow_hears.py",
            "nsqd/replication/fellows.py",
        ],
        f"{UNIT}/nsqd/replication/test_meeting.py": ["nsqd/replication/holdings.py"],
        f"{UNIT}/nsqd/log/test_writer.py": ["nsqd/log/segments.py", "nsqd/storage/topic_store.py"],
        f"{UNIT}/nsqtools/test_timing.py": ["nsqtools/timed.py"],
    },
    THROUGH: {
        f"{NSQD}/test_tcp_identify.py": ["nsqd/protocol/identify.py"],
        f"{NSQD}/test_tcp_publish.py": ["client/nsqclient/wire/names.py"],
        f"{NSQD}/test_tcp_states.py": ["nsqd/protocol/states.py"],
        f"{UNIT}/nsqd/protocol/test_session.py": [
            "nsqd/protocol/consume.py",
            "nsqd/protocol/conversation.py",
            "nsqd/protocol/reading.py",
        ],
        f"{UNIT}/nsqd/protocol/test_session_batches.py": [
            "nsqd/protocol/batch.py",
            "nsqd/protocol/publish.py",
        ],
        f"{UNIT}/nsqd/engine/test_topic.py": ["nsqd/engine/broker.py"],
    },
    NAMES: {
        f"{NSQD}/test_process.py": [
            "client/nsqclient/version.py",
            "client/nsqclient/wire/version.py",
            "nsqcore/version.py",
        ],
        "tests/integration/test_client_bad_input.py": ["client/nsqclient/errors.py"],
        "tests/pipelines/test_columns.py": [
            "pipelines/pyspark_nsq/source/names.py",
            "pipelines/pyspark_nsq/source/schema.py",
        ],
        "tests/pipelines/test_options.py": ["pipelines/pyspark_nsq/source/errors.py"],
        f"{UNIT}/nsqclient/wire/test_frames.py": ["client/nsqclient/wire/errors.py"],
        f"{UNIT}/nsqd/protocol/test_session.py": ["nsqd/engine/limits.py", "nsqd/protocol/replies.py"],
        f"{UNIT}/nsqd/replication/test_framing.py": ["nsqd/replication/frames.py"],
        f"{UNIT}/nsqd/replication/test_home.py": ["nsqd/replication/linked.py"],
        f"{UNIT}/nsqd/replication/test_keeper.py": ["nsqd/log/tap.py", "nsqd/replication/keeper_states.py"],
    },
    FILES: {
        f"{NSQD}/test_data_tool.py": [
            "nsqd/data/commands.py",
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
    path = Path(source.removeprefix("client/"))
    folder = ROOT / "tests" / ("pipelines" if path.parts[0] == "pipelines" else Path("unit", path.parent))
    return folder / f"test_{path.name}"


# One test for all files: distributing a thousand tests to workers would take longer than running them.
def test_every_source_file_has_its_mirror_or_a_reason():
    lacking = [one for one in sources() if not mirror(one).exists() and one not in SOURCES_ELSEWHERE]

    assert [f"write {mirror(source).relative_to(ROOT)}" for source in lacking] == []


def test_a_reason_is_for_a_file_that_is_there_and_has_no_mirror():
    assert [source for source in SOURCES_ELSEWHERE if not (ROOT / source).exists()] == []
    assert [source for source in SOURCES_ELSEWHERE if mirror(source).exists()] == []


def test_the_tests_that_lie_elsewhere_are_there():
    empty = [one for one in TESTS_ELSEWHERE if "def test_" not in (ROOT / one).read_text(encoding="utf-8")]

    assert empty == []
