"""Mutations of setting channels back, keeping finished messages, and handling single messages."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation
from tests.campaign.mutations.of_log import KILLS

_BROKER: Final = "nsqd/engine/broker.py"
_SEEKING: Final = "nsqd/engine/seeking.py"
_HANDLING: Final = "nsqd/engine/handling.py"
_SEEK_TESTS: Final = "tests/unit/nsqd/engine/test_seeking.py"
_HANDLE_TESTS: Final = "tests/unit/nsqd/engine/test_handling.py"
_KEEP_TESTS: Final = "tests/unit/nsqd/storage/test_keeping.py"

REPLAY: Final = (
    Mutation(
        "notes-are-applied-to-a-log-without-an-end",
        "nsqd/storage/restoring.py",
        """\
    topic.log.next_seq = next_seq
    for happening in happenings:
""",
        """\
    for happening in happenings:
""",
        ("tests/unit/nsqd/storage/test_restoring.py",),
    ),
    Mutation(
        "seek-not-noted",
        _BROKER,
        """\
        self._note(topic, notes.SEEK, channel.name, sequence=position, owed=kept, generation=generation)
""",
        """\
        topic.changed = True
""",
        (KILLS,),
    ),
    Mutation(
        "seek-has-what-the-topic-holds-back-wait-twice",
        _SEEKING,
        "    end = channel.end if waiting is None else min(channel.end, waiting)\n",
        "    end = channel.end\n",
        (_SEEK_TESTS,),
    ),
    Mutation(
        "a-copy-without-a-checkpoint-says-what-it-never-had-is-finished",
        "nsqd/storage/restoring.py",
        "    if noted is not None:\n        owed",
        "    if True:\n        owed",
        ("tests/unit/nsqd/storage/test_restoring.py",),
    ),
    Mutation(
        "seek-keeps-the-generation",
        _SEEKING,
        """\
    channel.generation = topic.draw_generation(channel.name) if generation is None else generation
""",
        "",
        (_SEEK_TESTS,),
    ),
    Mutation(
        "seek-keeps-the-journal",
        _SEEKING,
        """\
        channel.journal = Journal()
""",
        """\
        pass
""",
        (_SEEK_TESTS,),
    ),
    Mutation(
        "facts-of-another-generation-count",
        "nsqd/engine/state.py",
        """\
        if later.generation != self.generation:
""",
        """\
        if later.generation < self.generation:
""",
        (_SEEK_TESTS,),
    ),
    Mutation(
        "seek-keeps-what-was-committed",
        _SEEKING,
        """\
    channel.committed = position
""",
        "",
        (_SEEK_TESTS,),
    ),
    Mutation(
        "seek-delivers-what-is-in-flight-once-more",
        _SEEKING,
        """\
        settled.add(seq, seq + 1 if run.broken else run.end)
""",
        "",
        (_SEEK_TESTS,),
    ),
    Mutation(
        "seek-forgets-that-messages-in-flight-were-delivered",
        _SEEKING,
        """\
        run.noted = False
""",
        "",
        (_SEEK_TESTS,),
    ),
    Mutation(
        "finished-message-not-noted",
        _BROKER,
        """\
            self._note(topic, notes.FINISH, channel.name, sequences=owed)
""",
        """\
            topic.changed = True
""",
        (KILLS,),
    ),
    Mutation(
        "message-put-off-not-noted",
        _BROKER,
        """\
            self._note(topic, notes.DEFER, channel.name, messages=messages)
""",
        """\
            topic.changed = True
""",
        (_HANDLE_TESTS, KILLS),
    ),
    Mutation(
        "message-that-is-sent-keeps-its-due-time",
        _HANDLING,
        """\
            channel.journal.put_off(start, end, now_ns)
""",
        """\
            pass
""",
        (_HANDLE_TESTS,),
    ),
    Mutation(
        "nothing-is-kept",
        "nsqd/engine/topic.py",
        """\
        return min(self.low_water(), self.keeps_from)
""",
        """\
        return self.low_water()
""",
        (_KEEP_TESTS, KILLS),
    ),
    Mutation(
        "compaction-takes-what-is-kept",
        "nsqd/engine/state.py",
        """\
    return WantedPositions(owing, topic.keeps_from)
""",
        """\
    return WantedPositions(owing)
""",
        (KILLS,),
    ),
)
