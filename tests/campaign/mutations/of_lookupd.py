"""Mutations of nsqlookupd."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

LOOKUPD: Final = (
    Mutation(
        "a-tombstone-misses-ipv6",
        "nsqlookupd/registry.py",
        'if node in {f"{address}:{port}", f"[{address}]:{port}"}:',
        'if node == f"{address}:{port}":',
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "a-tombstone-outlives-its-answer",
        "nsqlookupd/registry.py",
        "until_ns = min(until_ns, tombstoned_ns + self._tombstone_lifetime_ns)",
        "pass",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "the-oldest-connection-counts",
        "nsqlookupd/registry.py",
        "other.serial < peer.serial",
        "other.serial > peer.serial",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "a-silent-nsqd-is-told-of",
        "nsqlookupd/registry.py",
        "return not peer.gone and now_ns - peer.last_update_ns <= self._inactive_after_ns",
        "return not peer.gone",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "a-tombstoned-nsqd-may-be-published-to",
        "nsqlookupd/registry.py",
        "if not peer.obstacle and not self._is_tombstoned(producers.get(peer, NEVER), now_ns)",
        "if not peer.obstacle",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "an-answer-survives-a-change",
        "nsqlookupd/registry.py",
        """\
        peer.gone = True
        self._common = (frozenset(), _Answer([], 0))""",
        "        peer.gone = True",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "channels-of-an-ephemeral-topic-stay",
        "nsqlookupd/registry.py",
        """\
            for channel in [name for name, one in self._channels.get(topic, {}).items() if not one.peers]:
                self._drop_channel(topic, channel)""",
        "            pass",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "an-nsqd-that-does-not-read-is-kept",
        "nsqlookupd/tcp.py",
        "if self._transport.get_write_buffer_size() > MAX_UNSENT:",
        "if False:",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "ready-after-one-look",
        "nsqlookupd/readiness.py",
        "elif self._complete_before:",
        "elif True:",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "another-site-changes-nsqlookupd",
        "nsqlookupd/daemon.py",
        "refuse_foreign=True",
        "refuse_foreign=False",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd",),
    ),
    Mutation(
        "a-gone-nsqd-is-told-of",
        "nsqlookupd/session.py",
        "            self._registry.remove_peer(self.peer)",
        "            pass",
        ("tests/unit/nsqlookupd tests/integration/nsqlookupd/test_tcp.py",),
    ),
    Mutation(
        "an-obstacle-stays",
        "nsqlookupd/session.py",
        "peer.obstacle = command.obstacle[:_OBSTACLE]",
        "peer.obstacle = peer.obstacle or command.obstacle[:_OBSTACLE]",
        ("tests/unit/nsqlookupd/test_session.py",),
    ),
    Mutation(
        "one-client-takes-a-round",
        "nsqlookupd/rounds.py",
        "                self._steps.append(step)",
        "                self._steps.appendleft(step)",
        ("tests/unit/nsqlookupd/test_rounds.py",),
    ),
    Mutation(
        "one-that-nobody-knows-is-ready",
        "nsqlookupd/readiness.py",
        "return len(absent) > max(1, len(expected) // 10)",
        "return False",
        ("tests/unit/nsqlookupd/test_readiness.py",),
    ),
)
