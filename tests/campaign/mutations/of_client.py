"""Mutations of the client."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

CLIENT: Final = (
    Mutation(
        "a-failed-trial-decides-nothing",
        "client/nsqclient/backoff.py",
        "return self._stop(chance) if self.phase is Phase.TRIAL else None",
        "return None",
        ("tests/unit/nsqclient/test_backoff.py tests/property/test_backoff.py",),
    ),
    Mutation(
        "jitter-is-left-out",
        "client/nsqclient/backoff.py",
        "return duration * chance if self.full_jitter else duration",
        "return duration",
        (
            "tests/unit/nsqclient/test_backoff.py tests/unit/nsqclient/test_rdy.py tests/property/test_backoff.py tests/integration/test_client_handlers.py tests/integration/test_client_consumer.py",
        ),
    ),
    Mutation(
        "a-busy-connection-keeps-its-share",
        "client/nsqclient/rdy.py",
        " or now - share.told_at > self._hold_timeout",
        "",
        (
            "tests/unit/nsqclient/test_backoff.py tests/unit/nsqclient/test_rdy.py tests/property/test_backoff.py tests/integration/test_client_handlers.py tests/integration/test_client_consumer.py",
        ),
    ),
    Mutation(
        "rdy-is-raised-before-it-is-lowered",
        "client/nsqclient/rdy.py",
        "return lowered | raised",
        "return raised | lowered",
        ("tests/unit/nsqclient/test_rdy.py tests/property/test_rdy.py",),
    ),
    Mutation(
        "a-trial-goes-with-its-connection",
        "client/nsqclient/rdy.py",
        "if self._phase is Phase.TRIAL and share.count:",
        "if False:",
        ("tests/unit/nsqclient/test_rdy.py tests/property/test_rdy.py",),
    ),
    Mutation(
        "no-farewell",
        "client/nsqclient/draining.py",
        """\
        farewells = [connection.request(commands.CLS) for connection in connections]
        if farewells:""",
        """\
        farewells = []
        if farewells:""",
        (
            'tests/integration/test_client_consumer.py tests/integration/test_client_handlers.py -k "clos or drain or stop"',
        ),
    ),
    Mutation(
        "one-bad-message-fails-those-beside-it",
        "client/nsqclient/dispatch.py",
        "parts = publish.split() if error.code in _ONE_IS_BAD else [publish]",
        "parts = [publish]",
        ('tests/integration/test_client_producer.py -k "travelled or refused"',),
    ),
    Mutation(
        "a-node-that-cannot-write-is-kept",
        "client/nsqclient/dispatch.py",
        "if error.code in _NODE_FAILED:",
        "if False:",
        ('tests/integration/test_client_producer.py -k "cannot_write"',),
    ),
    Mutation(
        "what-is-lost-while-nsqlookupd-is-asked-fails",
        "client/nsqclient/dispatch.py",
        """\
        while self.links.has_lookups and (failing := self._failing()):
            await""",
        """\
        if self.links.has_lookups and (failing := self._failing()):
            await""",
        ('tests/integration/test_client_lookups.py -k "come_back"',),
    ),
    Mutation(
        "a-sample-rate-of-100",
        "client/nsqclient/wire/identify.py",
        "_MAX_SAMPLE_RATE: Final = 99",
        "_MAX_SAMPLE_RATE: Final = 100",
        ("tests/unit/nsqclient/wire/test_identify.py",),
    ),
    Mutation(
        "any-time-out",
        "client/nsqclient/wire/identify.py",
        "if msg_timeout and not _MIN_INTERVAL_MS <= msg_timeout <= limits.max_msg_timeout:",
        "if msg_timeout and not _MIN_INTERVAL_MS <= msg_timeout:",
        ("tests/unit/nsqclient/wire/test_identify.py",),
    ),
    Mutation(
        "attempts-are-given-up-one-early",
        "client/nsqclient/verdicts.py",
        "        self.max_attempts = retry.max_attempts or 1 << 16",
        "        self.max_attempts = (retry.max_attempts or 1 << 16) - 1",
        (
            'tests/integration/test_client_handlers.py tests/integration/test_client_consumer.py -k "attempt or giv"',
        ),
    ),
    Mutation(
        "retry-ignores-its-most",
        "client/nsqclient/retry.py",
        "seconds = min(_checked(self.first) * self.factor**exponent, most)",
        "seconds = _checked(self.first) * self.factor**exponent",
        ("tests/unit/nsqclient/test_retry.py",),
    ),
    Mutation(
        "jitter-makes-delays-longer",
        "client/nsqclient/retry.py",
        "return seconds * (1 - self.jitter * random.random())",
        "return seconds * (1 + self.jitter * random.random())",
        ("tests/unit/nsqclient/test_retry.py",),
    ),
    Mutation(
        "a-collector-that-gave-up-is-woken",
        "client/nsqclient/handling.py",
        "                if arrived in self._hungry:\n                    self._hungry.remove(arrived)",
        "                pass",
        ('tests/integration/test_client_faults.py -k "trickle"',),
    ),
    Mutation(
        "a-frozen-nsqd-is-used-like-the-others",
        "client/nsqclient/links.py",
        "if link.owed_for <= OVERDUE_SECONDS and",
        "if",
        ('tests/integration/test_client_faults.py -k "passes_over"',),
    ),
    Mutation(
        "a-handler-that-says-false-has-finished",
        "client/nsqclient/verdicts.py",
        "        if result is False:",
        "        if False:",
        ('tests/integration/test_client_faults.py -k "returns_false"',),
    ),
    Mutation(
        "requeue-is-at-once-by-default",
        "client/nsqclient/message.py",
        "retry.delay(self.attempts) if delay is None",
        "0 if delay is None",
        ('tests/integration/test_client_faults.py -k "without_a_delay"',),
    ),
    Mutation(
        "a-backlog-is-bounded-in-number-alone",
        "client/nsqclient/backlog.py",
        "return self.messages < self._most_messages and self.bytes < self._most_bytes",
        "return self.messages < self._most_messages",
        ('tests/unit/nsqclient/test_backlog.py tests/integration/test_client_faults.py -k "bytes or room"',),
    ),
    Mutation(
        "an-outcome-ends-behind-the-back-of-who-waits",
        "client/nsqclient/threads.py",
        """\
            if "_condition" in self.__dict__:
                return False""",
        """\
            if False:
                return False""",
        ("tests/unit/nsqclient/test_threads.py",),
    ),
    Mutation(
        "a-message-in-flight-is-silence",
        "client/nsqclient/rdy.py",
        "silent_for = 0 if in_flight.get(key) else now",
        "silent_for = now",
        ("tests/unit/nsqclient/test_rdy.py",),
    ),
    Mutation(
        "a-dead-letter-is-a-success",
        "client/nsqclient/consumer.py",
        "            outcome = Outcome.FAILED",
        "            outcome = Outcome.FINISHED",
        ('tests/integration/test_client_features.py -k "backed_off or trial"',),
    ),
    Mutation(
        "an-nsqlookupd-that-was-just-started-is-believed",
        "client/nsqclient/links.py",
        "        if not found and not self._fixed and (self.in_use or self._connecting):",
        "        if False:",
        ("tests/integration/test_client_lookups.py",),
    ),
    Mutation(
        "what-a-dead-nsqlookupd-said-is-true-for-ever",
        "client/nsqclient/links.py",
        "            self._directory.unreachable(address)\n",
        "",
        ("tests/integration/test_client_lookups.py",),
    ),
    Mutation(
        "a-hung-nsqlookupd-holds-up-everybody",
        "client/nsqclient/directory.py",
        "await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)",
        "await asyncio.wait(waiting)",
        ("tests/integration/test_client_lookups.py",),
    ),
    Mutation(
        "a-last-batch-waits-to-be-full",
        "client/nsqclient/handling.py",
        "elif not self._expects_more or self._is_starved():",
        "elif self._is_starved():",
        ("tests/integration/test_client_faults.py -k full_batch",),
    ),
    Mutation(
        "an-nsqd-is-connected-after-it-was-left",
        "client/nsqclient/subscriptions.py",
        " or self._leaves[address] > leaves",
        "",
        ("tests/integration/test_client_features.py -k being_connected",),
    ),
)
