"""Mutations of code that daemons share, and of nsqd's interfaces: HTTP, TLS, heartbeats, drain, figures."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

SERVICE: Final = (
    Mutation(
        "percentiles-share-a-name",
        "nsqd/server/figures/statsd.py",
        ':.10g}".replace',
        ':.0f}".replace',
        ("tests/unit/nsqd/server/figures/test_statsd.py tests/integration/nsqd/test_http_info.py",),
    ),
    Mutation(
        "a-counter-that-begins-again-goes-down",
        "nsqd/server/figures/statsd.py",
        "shown = value - before if value >= before else value",
        "shown = value - before",
        ("tests/unit/nsqd/server/figures/test_statsd.py tests/integration/nsqd/test_http_info.py",),
    ),
    Mutation(
        "a-prefix-has-no-dot",
        "nsqd/server/figures/statsd.py",
        'return prefix + "." if prefix and not prefix.endswith(".") else prefix',
        "return prefix",
        ("tests/unit/nsqd/server/figures/test_statsd.py tests/integration/nsqd/test_http_info.py",),
    ),
    Mutation(
        "any-version-of-tls",
        "nsqcore/process/tls.py",
        """\
        accept_from(context, min_version)
        # A client that reneg""",
        "        # A client that reneg",
        (
            'tests/unit/nsqcore/process/test_tls.py tests/integration/nsqd/test_tls.py -k "version or tls1 or first"',
        ),
    ),
    Mutation(
        "renegotiation",
        "nsqcore/process/tls.py",
        """\
        context.options |= ssl.OP_NO_RENEGOTIATION
""",
        "",
        ("tests/unit/nsqcore/process/test_tls.py",),
    ),
    Mutation(
        "half-a-certificate-is-used",
        "nsqcore/process/tls.py",
        """\
        self._load(self._make())
""",
        "",
        ("tests/unit/nsqcore/process/test_tls.py",),
    ),
    Mutation(
        "who-published-before-goes-on",
        "nsqd/server/http/drain.py",
        "                self._clients.forget_publish_lines()",
        "                pass",
        ('tests/integration/nsqd/test_drain.py -k "connected or taken_back"',),
    ),
    Mutation(
        "a-drain-ends-too-soon",
        "nsqd/drain.py",
        """\
    time.sleep(max(0.0, options.at_least_s - (time.monotonic() - began)))
""",
        "",
        ('tests/integration/nsqd/test_drain.py tests/unit/nsqd/test_drain.py -k "command"',),
    ),
    Mutation(
        "http-publishes-into-a-drain",
        "nsqd/server/http/publish.py",
        """\
        if self._broker.draining:
""",
        """\
        if False:
""",
        ('tests/integration/nsqd/test_drain.py -k "http"',),
    ),
    Mutation(
        "a-late-heartbeat-ends-a-connection",
        "nsqd/server/heartbeats.py",
        "if now - self._heartbeat.when() > LATE_S:",
        "if False:",
        ('tests/integration/nsqd/test_tcp_time.py -k "stop"',),
    ),
    Mutation(
        "silence-is-no-end",
        "nsqd/server/heartbeats.py",
        "            self._deadline = self._loop.call_later(2 * interval, self._check_deadline, 2 * interval)",
        "            pass",
        ('tests/integration/nsqd/test_tcp_time.py -k "silence or silent"',),
    ),
    Mutation(
        "any-level-of-deflate",
        "nsqd/protocol/identify.py",
        "deflate_level=min(level, limits.max_deflate_level)",
        "deflate_level=level",
        (
            'tests/unit/nsqd/protocol/test_session.py tests/integration/nsqd/test_tcp_compression.py tests/integration/nsqd/test_tcp_identify.py -k "deflate or level or negotiated or identify"',
        ),
    ),
    Mutation(
        "a-declared-length-is-not-checked",
        "nsqd/server/http/publish.py",
        """\
        if declared is not None and declared > limits.max_body_size:
            raise ApiError(413, "BODY_TOO_BIG", close=True)
""",
        "",
        ('tests/integration/nsqd/test_http_publish.py -k "limit or chunks or declared"',),
    ),
    Mutation(
        "chunks-are-not-counted",
        "nsqcore/http/api.py",
        """\
                if size > limit:
                    raise ApiError(413, too_big, close=True)
""",
        "",
        ('tests/integration/nsqd/test_http_publish.py -k "chunks or limit"',),
    ),
    Mutation(
        "no-host-is-no-stranger",
        "nsqcore/http/foreign.py",
        "return not host or host not in",
        "return host not in",
        ("tests/unit/nsqcore/http/test_foreign.py",),
    ),
    Mutation(
        "a-shortage-ends-when-somebody-comes",
        "nsqcore/process/accepting.py",
        """\
        # All who waited may have been taken before it failed: nobody would come to show that it is over.
        self._accept()""",
        "",
        ("tests/unit/nsqcore/process/test_accepting.py",),
    ),
    Mutation(
        "no-more-files",
        "nsqcore/process/lifecycle.py",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))",
        "pass",
        ("tests/unit/nsqcore/process/test_lifecycle.py",),
    ),
    Mutation(
        "a-long-batch-goes-on-behind-a-drain",
        "nsqd/engine/broker.py",
        "return not (self.dirty or self.under_way)",
        "return not self.dirty",
        ("tests/unit/nsqd/engine/test_draining.py tests/unit/nsqd/server/http/test_publish.py",),
    ),
    Mutation(
        "what-is-behind-those-that-wait-stays-unsent",
        "nsqd/server/tcp.py",
        """\
            self.hold_answer(0)
""",
        "",
        ('tests/unit/nsqd/server/test_fsync.py -k "behind"',),
    ),
    Mutation(
        "a-drain-leaves-old-figures-behind",
        "nsqd/drain.py",
        'while state["drained"] and state.get("scraped_as_owing") and',
        "while False and",
        ('tests/integration/nsqd/test_drain.py -k "scrape"',),
    ),
    Mutation(
        "a-commit-goes-into-a-log-that-is-gone",
        "nsqd/server/http/log.py",
        """\
        refuse_when_leaving(self._broker)
""",
        "",
        ('tests/integration/nsqd/test_hand_over.py -k "go_elsewhere"',),
    ),
    Mutation(
        "a-keeper-that-could-not-be-noted-is-appointed",
        "nsqd/replication/appointing.py",
        "            known.last, known.current, known.former = before.last, before.current, before.former\n",
        "",
        ("tests/unit/nsqd/replication/test_appointing.py tests/unit/nsqd/server/replication",),
    ),
    Mutation(
        "a-repeated-change-counts-as-durable",
        "nsqd/server/fsync.py",
        "        if store.doubt is not None and store not in self._fresh:\n",
        "        if False:\n",
        ("tests/unit/nsqd/server/test_fsync.py -k repeats",),
    ),
    Mutation(
        "dead-letters-are-stored-again-each-second",
        "nsqd/server/dead_letters.py",
        "        if store is not None and store.sync_error is not None:\n",
        "        if False:\n",
        ("tests/unit/nsqd/server/test_dead_letters.py",),
    ),
    Mutation(
        "letters-go-back-twice",
        "nsqd/server/http/dead_letters.py",
        "        self._moving |= moving\n",
        "",
        ("tests/unit/nsqd/server/http/test_dead_letters.py",),
    ),
    Mutation(
        "a-failed-look-up-prevents-the-drain",
        "nsqtools/kube/drain_hook.py",
        "        except Exception as error:  # noqa: BLE001 - whatever it is, the drain is not left out\n",
        "        except ApiFailed as error:\n",
        ("tests/unit/nsqtools/kube/test_drain_hook.py",),
    ),
    Mutation(
        "the-secret-for-keepers-is-that-of-the-start",
        "nsqd/server/replication/secret.py",
        "        try:\n            self._last = self._read()\n        except _Unusable as error:\n            if str",
        "        try:\n            pass\n        except _Unusable as error:\n            if str",
        ("tests/unit/nsqd/server/replication/test_secret.py",),
    ),
)
