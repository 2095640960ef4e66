"""Mutations of carried logs of other nsqd: the facts told and learned, and the messages held back."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

_CARRIED: Final = "nsqd/engine/carried.py"
_RESTORING: Final = "nsqd/storage/restoring.py"
_OPENING: Final = "nsqd/storage/carried.py"
_TOPIC: Final = "nsqd/engine/topic.py"
_UNIT: Final = "tests/unit/nsqd/engine"
_FACTS: Final = f"{_UNIT}/test_facts.py"
_CARRIED_TESTS: Final = f"{_UNIT}/test_carried.py"
_RESTORED: Final = "tests/unit/nsqd/storage/test_restoring.py"
_OPENED: Final = "tests/unit/nsqd/storage/test_carried.py"

CARRIED: Final = (
    Mutation(
        "what-was-never-had-is-told-as-finished",
        "nsqd/engine/facts.py",
        "finished_of(channel.finished, channel.end, channel.ahead, had(topic))",
        "finished_of(channel.finished, channel.end, channel.ahead, [(0, topic.log.next_seq)])",
        (_FACTS,),
    ),
    Mutation(
        "what-cannot-be-read-is-told-as-finished",
        "nsqd/engine/delivering.py",
        "            self.log.had.take_out(span.start, end)\n",
        "",
        (_FACTS,),
    ),
    Mutation(
        "refused-messages-leave-holes",
        _TOPIC,
        "        self.alone.drop_from(self.log.next_seq)\n",
        "        self.alone.drop_from(self.log.next_seq)\n"
        "        self.log.had.go_on_at(self.log.next_seq, self._encoder.next_seq)\n",
        (_FACTS, _RESTORED),
    ),
    Mutation(
        "numbers-between-two-lives-were-had",
        _TOPIC,
        "            self.log.had.go_on_at(self.log.next_seq, seq)\n",
        "",
        (_FACTS, _RESTORED),
    ),
    Mutation(
        "what-a-power-cut-took-was-had",
        _RESTORING,
        "    topic.log.had.begin(without(had, lost), log.end)\n",
        "    topic.log.had.begin(had, log.end)\n",
        (_RESTORED,),
    ),
    Mutation(
        "what-a-power-cut-damaged-was-had",
        _RESTORING,
        "    lost = merged(damaged + [",
        "    lost = merged([",
        (_RESTORED,),
    ),
    Mutation(
        "generation-of-a-channel-not-noted",
        "nsqd/engine/broker.py",
        "            self._note(topic, notes.CREATE, name, generation=channel.generation, **owed)\n",
        "            self._note(topic, notes.CREATE, name, **owed)\n",
        (_RESTORED,),
    ),
    Mutation(
        "a-deleted-channel-is-not-remembered",
        _TOPIC,
        "            self.gone[name] = channel.generation\n",
        "",
        (_FACTS, _RESTORED),
    ),
    Mutation(
        "facts-of-another-generation-are-believed",
        _CARRIED,
        "    elif channel.generation != told.generation:\n",
        "    elif False:\n",
        (_CARRIED_TESTS,),
    ),
    Mutation(
        "what-was-learned-is-not-noted",
        _CARRIED,
        "                topic.note(notes.FINISH, channel.name, sequences=news[at : at + _NOTED_AT_ONCE])\n",
        "                pass\n",
        (_CARRIED_TESTS,),
    ),
    Mutation(
        "a-deleted-channel-is-made-again-by-who-has-not-heard",
        _CARRIED,
        "        if topic.gone.get(name) == told.generation or (isinstance(topic, CarriedTopic) and topic.given_up):\n",
        "        if False:\n",
        (_CARRIED_TESTS,),
    ),
    Mutation(
        "a-channel-learned-of-owes-nothing-of-before",
        _CARRIED,
        "    kept = without(stored, told.finished)\n",
        "    kept: Ranges = []\n",
        (_CARRIED_TESTS,),
    ),
    Mutation(
        "a-copy-is-let-go-of-while-something-is-in-flight",
        _CARRIED,
        "    if in_flight(carried) and not force:\n",
        "    if False:\n",
        (_CARRIED_TESTS,),
    ),
    Mutation(
        "what-is-finished-and-held-back-is-forgotten",
        "nsqd/engine/finishing.py",
        "            channel.ahead = known\n",
        "            pass\n",
        (f"{_UNIT}/test_finishing.py",),
    ),
    Mutation(
        "what-is-withheld-waits-when-it-comes-back",
        "nsqd/engine/owed.py",
        """\
                self.put_back(low, high)
            return
""",
        """\
                self.put_back(low, high)
""",
        (f"{_UNIT}/test_withholding.py",),
    ),
    Mutation(
        "who-leaves-keeps-what-is-carried",
        "nsqd/engine/channel.py",
        "            sibling._take_back(consumer)\n",
        "            pass\n",
        (_CARRIED_TESTS,),
    ),
    Mutation(
        "what-a-copy-lacks-counts-as-lost",
        "nsqd/engine/delivering.py",
        "            if self.ids is None:\n",
        "            if self.log is not None:\n",
        (_CARRIED_TESTS,),
    ),
    Mutation(
        "a-log-without-messages-saves-its-turns-up",
        "nsqd/server/in_turn.py",
        "        one.served_bytes = max(one.served_bytes, found.served_bytes)\n",
        "        pass\n",
        ("tests/unit/nsqd/server/test_in_turn.py",),
    ),
    Mutation(
        "a-carrier-forgets-what-it-finished",
        _OPENING,
        "        recall(topic, here)\n",
        "        pass\n",
        (_OPENED,),
    ),
    Mutation(
        "a-carrier-remembers-of-another-channel",
        _OPENING,
        "        elif channel.generation != generation:\n",
        "        elif False:\n",
        (_OPENED,),
    ),
    Mutation(
        "a-carrier-gives-the-files-of-another-up",
        "nsqd/server/upkeep.py",
        "        low_water = 0 if isinstance(store, CarriedStore) else topic.unwanted_below()\n",
        "        low_water = topic.unwanted_below()\n",
        ("tests/unit/nsqd/server/test_upkeep.py",),
    ),
    Mutation(
        "a-checkpoint-beside-a-change-counts-as-not-written",
        "nsqd/server/upkeep.py",
        "                return await self._write_now(topic, store)\n",
        "                return await self._write_now(topic, store) and not topic.changed\n",
        ("tests/unit/nsqd/server/test_upkeep.py",),
    ),
    Mutation(
        "a-checkpoint-that-failed-counts-as-written",
        "nsqd/server/upkeep.py",
        "                return await self._write_now(topic, store)\n",
        "                return await self._write_now(topic, store) or True\n",
        ("tests/unit/nsqd/server/test_upkeep.py",),
    ),
    Mutation(
        "a-failure-takes-the-place-of-a-cancellation",
        "nsqd/server/upkeep.py",
        "            await asyncio.gather(job, return_exceptions=True)\n            raise\n",
        "            await job\n            raise\n",
        ("tests/unit/nsqd/server/test_upkeep.py",),
    ),
    Mutation(
        "a-checkpoint-that-was-cancelled-is-not-written-again",
        "nsqd/server/upkeep.py",
        "                # A round that ran meanwhile has skipped the topic.\n                topic.changed = True\n",
        "                pass\n",
        ("tests/unit/nsqd/server/test_upkeep.py",),
    ),
    Mutation(
        "connecting-to-a-keeper-swallows-a-cancellation",
        "nsqd/server/replication/linking.py",
        "            async with asyncio.timeout(_CONNECT_S):\n                connection = await self._connect()\n",
        "            connection = await asyncio.wait_for(self._connect(), _CONNECT_S)\n",
        ("tests/unit/nsqd/server/replication/test_linking.py",),
    ),
)
