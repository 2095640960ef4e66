"""Mutations of policies: bounds, time to live, attempts, dead letters and sending them back."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

_CRASH: Final = "tests/chaos/test_dead_letters_crash.py"
_LETTING_GO: Final = "tests/unit/nsqd/engine/test_letting_go.py"
_BOUNDS: Final = "tests/integration/nsqd/test_bounds.py"
_DEAD: Final = "tests/integration/nsqd/test_dead_letters.py"

POLICIES: Final = (
    Mutation(
        "dead-letter-written-and-not-synced",
        "nsqd/server/dead_letters.py",
        "self._turn.when_certain(topic,",
        "self._turn.when_stored(topic,",
        (_CRASH,),
    ),
    Mutation(
        "original-finished-before-its-dead-letter-is-written",
        "nsqd/server/dead_letters.py",
        "            self._turn.when_certain(topic, partial(self._written, channel, topic, staged))\n",
        "            self._broker.dirty[topic] = None\n"
        '            self._written(channel, topic, staged, "")\n',
        (_CRASH,),
    ),
    Mutation(
        "dead-letter-that-failed-not-tried-again",
        "nsqd/server/dead_letters.py",
        "            channel.dying.failed(death)\n",
        "            pass\n",
        (f'{_DEAD} -k "full_keeps"',),
    ),
    Mutation(
        "sent-back-written-and-not-synced",
        "nsqd/server/http/dead_letters.py",
        "                await self._turn.durable(origin)\n",
        "                await self._turn.stored(origin)\n",
        (_CRASH,),
    ),
    Mutation(
        "sent-back-to-all-channels-after-a-crash",
        "nsqd/engine/topic.py",
        "            self._notes.append(notes.encode(notes.ONLY, channel_name, first=first, end=end))\n",
        "            pass\n",
        (_CRASH,),
    ),
    Mutation(
        "sent-back-to-all-channels",
        "nsqd/engine/topic.py",
        "        self.keep_for(channel_name, first, end)\n",
        "",
        ("tests/unit/nsqd/engine/test_sending_back.py",),
    ),
    Mutation(
        "attempts-not-counted",
        "nsqd/engine/answered.py",
        "            if most and attempts >= most:\n",
        "            if most and attempts > most:\n",
        (_LETTING_GO,),
    ),
    Mutation(
        "returned-counts-as-tried",
        "nsqd/engine/answered.py",
        "            most *= 2\n",
        "            pass\n",
        (_LETTING_GO,),
    ),
    Mutation(
        "dropped-and-still-owed",
        "nsqd/engine/owed.py",
        "                self.forget_attempts(start, end)\n                self.finished.add(start, end)\n",
        "                self.forget_attempts(start, end)\n",
        (_LETTING_GO,),
    ),
    Mutation(
        "expired-and-still-owed",
        "nsqd/engine/answered.py",
        "            self.forget_attempts(start, end)\n            self.finished.add(start, end)\n",
        "            pass\n",
        (_LETTING_GO,),
    ),
    Mutation(
        "expired-is-no-dead-letter",
        "nsqd/engine/answered.py",
        "        if settings.dead_letter_topic and settings.dead_letter_topic != self.topic_name:\n",
        "        if False:\n",
        (_LETTING_GO,),
    ),
    Mutation(
        "nobody-looks-what-expires",
        "nsqd/server/in_turn.py",
        "            broker.schedule(channel, again_ns)\n",
        "            pass\n",
        (_LETTING_GO,),
    ),
    Mutation(
        "full-and-taken",
        "nsqd/engine/bounds.py",
        "            raise Full\n",
        "            pass\n",
        (f'{_BOUNDS} -k "told or whole"',),
    ),
    Mutation(
        "staged-does-not-count",
        "nsqd/engine/bounds.py",
        "        count += topic.staged_count\n",
        "",
        (f'{_BOUNDS} -k "counted_together"',),
    ),
    Mutation(
        "bounds-forgotten-by-a-restart",
        "nsqd/storage/data_path.py",
        "            broker.uphold(topic)\n",
        "",
        (f'{_BOUNDS} -k "oldest_go"',),
    ),
    Mutation(
        "disk-low-and-taken",
        "nsqd/engine/broker.py",
        "        bound = NOTHING_MORE if self.disk_low else bound_of(topic)\n",
        "        bound = bound_of(topic)\n",
        ("tests/unit/nsqd/server/test_watermark.py",),
    ),
    Mutation(
        "policies-of-http-not-written",
        "nsqd/server/policies.py",
        "        await asyncio.to_thread(self._save, content)\n",
        "",
        ('tests/integration/nsqd/test_policies.py -k "after_a_restart"',),
    ),
    Mutation(
        "deletes-without-being-asked",
        "nsqd/server/policies.py",
        "            self._refuse_deletion(joined.settings_for)\n",
        "            pass\n",
        ('tests/integration/nsqd/test_policies.py -k "only_when_that_is_meant"',),
    ),
    Mutation(
        "nothing-expires-behind-what-is-from-the-future",
        "nsqd/engine/letting_go.py",
        "        if published_ns > wall_ns:\n",
        "        if False:\n",
        ("tests/unit/nsqd/engine/test_letting_go.py",),
    ),
)
