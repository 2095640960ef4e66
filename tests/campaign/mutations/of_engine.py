"""Mutations of `nsqd/engine`: owed messages, and the notes about them in the log."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation
from tests.campaign.mutations.of_log import KILLS

_BROKER: Final = "nsqd/engine/broker.py"

ENGINE: Final = (
    Mutation(
        "made-channel-not-noted",
        _BROKER,
        """\
            self._note(topic, notes.CREATE, name, generation=channel.generation, **owed)
""",
        """\
            topic.changed = True
""",
        (KILLS,),
    ),
    Mutation(
        "what-a-channel-from-the-earliest-owes-not-noted",
        _BROKER,
        """\
            self._note(topic, notes.CREATE, name, generation=channel.generation, **owed)
""",
        """\
            self._note(topic, notes.CREATE, name, generation=channel.generation)
""",
        (KILLS,),
    ),
    Mutation(
        "requeue-with-a-delay-not-noted",
        _BROKER,
        """\
            topic.note_put_off(channel, seq, due_ns)
""",
        """\
            pass
""",
        (KILLS,),
    ),
    Mutation(
        "emptied-channel-not-noted",
        _BROKER,
        """\
        channel.empty()
        self._note(topic, notes.EMPTY, channel.name)
""",
        """\
        channel.empty()
""",
        ("tests/unit/nsqd/engine", KILLS),
    ),
    Mutation(
        "emptied-topic-not-noted",
        _BROKER,
        """\
            topic.empty()
            self._note(topic, notes.EMPTY, sequence=waiting)
""",
        """\
            topic.empty()
""",
        ("tests/unit/nsqd/engine", KILLS),
    ),
    Mutation(
        "emptying-a-topic-drops-what-did-not-wait-then",
        "nsqd/engine/replay.py",
        'topic.empty(note.get("sequence", 0))',
        "topic.empty()",
        ("tests/unit/nsqd/engine/test_notes.py",),
    ),
    Mutation(
        "emptying-a-topic-is-noted-though-nothing-waits",
        _BROKER,
        "        if waiting is not None:\n            topic.empty()\n            self._note(topic, notes.EMPTY, sequence=waiting)\n",
        "        topic.empty()\n        self._note(topic, notes.EMPTY, sequence=waiting or 0)\n",
        ("tests/unit/nsqd/engine/test_notes.py",),
    ),
    Mutation(
        "paused-channel-not-noted",
        _BROKER,
        """\
        self._note(topic, notes.PAUSE if paused else notes.UNPAUSE, channel.name)
""",
        "",
        ("tests/unit/nsqd/engine", KILLS),
    ),
    Mutation(
        "paused-topic-not-noted",
        _BROKER,
        """\
        self._note(topic, notes.PAUSE if paused else notes.UNPAUSE)
""",
        "",
        (KILLS,),
    ),
    Mutation(
        "deleted-channel-not-noted",
        _BROKER,
        """\
            self._note(topic, notes.DELETE, name)
""",
        """\
            topic.changed = True
""",
        (KILLS,),
    ),
    Mutation(
        "numbers-of-a-deleted-topic-are-used-again",
        _BROKER,
        """\
        self.sequences.note_used(topic.sequence_end)
""",
        "",
        ("tests/unit/nsqd/engine/test_sequences.py",),
    ),
    Mutation(
        "what-times-out-at-one-moment-comes-back-at-once",
        "nsqd/engine/inflight.py",
        "        while limit > 0 and heap and heap[0][0] <= now_ns:\n",
        "        while heap and heap[0][0] <= now_ns:\n",
        ("tests/unit/nsqd/engine/test_inflight.py",),
    ),
    Mutation(
        "messages-delivered-again-keep-their-attempts",
        "nsqd/engine/delivering.py",
        "piece = with_attempts_all(piece, attempts) or with_attempts_each(",
        "piece = piece or with_attempts_each(",
        ("tests/unit/nsqd/engine/test_channel.py",),
    ),
    Mutation(
        "all-that-a-client-has-sent-is-applied-at-once",
        "nsqd/server/tcp.py",
        "        portion = portions.take()\n",
        "        portion = portions.take_all()\n",
        ("tests/unit/nsqd/server/test_tcp.py",),
    ),
    Mutation(
        "what-is-left-of-a-client-is-lost-at-its-end",
        "nsqd/server/tcp.py",
        "            self.session.receive(self._portions.take_all(), clock_ns())\n",
        "            self._portions.take_all()\n",
        ("tests/unit/nsqd/server/test_tcp.py",),
    ),
    Mutation(
        "nobody-looks-when-what-was-delivered-times-out",
        "nsqd/server/delivery.py",
        "                broker.schedule(channel, deadline_ns)\n",
        "                pass\n",
        ("tests/unit/nsqd/server/test_delivery.py",),
    ),
    Mutation(
        "who-answers-soon-is-looked-for-too-late",
        "nsqd/server/delivery.py",
        "            if deadline_ns < channel.wake_ns:\n",
        "            if not channel.in_flight.count:\n",
        ("tests/unit/nsqd/server/test_delivery.py",),
    ),
    Mutation(
        "finished-runs-stay-in-the-heap",
        "nsqd/engine/inflight.py",
        "            self._drop_finished()\n",
        "            pass\n",
        ("tests/unit/nsqd/engine/test_inflight.py",),
    ),
    Mutation(
        "what-is-dropped-from-the-heap-takes-what-comes-next",
        "nsqd/engine/inflight.py",
        "        self._heap = live\n        self._newest_ns = -1\n",
        "        self._heap = live\n",
        ("tests/unit/nsqd/engine/test_inflight.py",),
    ),
    Mutation(
        "the-only-message-of-a-batch-may-be-of-any-size",
        "nsqd/protocol/publish.py",
        "[0] == length <= limits.max_msg_size:\n",
        "[0] == length:\n",
        ("tests/unit/nsqd/protocol",),
    ),
    Mutation(
        "the-only-message-of-a-batch-may-say-another-size",
        "nsqd/protocol/publish.py",
        "        if _INT32.unpack_from(data, start + len(_ONE))[0] == length <= limits.max_msg_size:\n",
        "        if length <= limits.max_msg_size:\n",
        ("tests/unit/nsqd/protocol",),
    ),
    Mutation(
        "letters-behind-a-restart-are-missed-by-others",
        "nsqd/engine/topic.py",
        "        if first == self._skipped[1]:\n",
        "        if False:\n",
        ("tests/integration/nsqd/test_dead_letters.py",),
    ),
)
