"""Mutations of policies, headers, and the state of messages that a look into the log reports."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

# Seeds in which policies apply.
_RULED: Final = tuple(f"kill --seed {seed} --every 5 --stop" for seed in (14, 17, 26, 44, 50, 2, 5, 35))
_DYING: Final = tuple(f"kill --seed {seed} --stop" for seed in (35, 41, 47, 29))
_ALONE: Final = "tests/unit/nsqd/engine/test_alone.py"
_REPEATED: Final = ("kill --seed 8 --every 40", "kill --seed 11 --every 40")
_REFUSED: Final = tuple(f"kill --seed {seed} --every 40" for seed in (14, 23, 5, 2, 11))
_RETRIED: Final = tuple(f"kill --seed {seed} --every 25" for seed in (23, 8, 26, 113))
_SENT_BACK: Final = (*(f"kill --seed {seed} --every 20" for seed in (47, 71)), "kill --seed 77 --every 1")
# Unit tests, because here a fault must come between a message with an id and its repeat.
_FAILING: Final = ("tests/unit/nsqd/engine/test_dedup.py", "tests/unit/nsqd/server/test_fsync.py")
_PLACES: Final = "tests/unit/nsqd/server/http/test_topics.py"
_DEDUP: Final = "nsqd/engine/dedup.py"

LOOKING: Final = (
    Mutation(
        "expired-before-its-time",
        "nsqd/engine/letting_go.py",
        "    oldest_ns = wall_ns - settings.ttl_ns\n",
        "    oldest_ns = wall_ns - settings.ttl_ns // 4\n",
        _RULED,
    ),
    Mutation(
        "expired-and-given-all-the-same",
        "nsqd/engine/letting_go.py",
        "    for start, end in channel.give_up_below(position):\n",
        "    for start, end in channel.give_up_below(0):\n",
        _RULED,
    ),
    Mutation(
        "bound-not-held-that-drops-the-oldest",
        "nsqd/engine/letting_go.py",
        "    if settings.drop_oldest and drop_oldest(channel, settings, channel.log):\n",
        "    if settings.drop_oldest and not drop_oldest:\n",
        _RULED,
    ),
    Mutation(
        "dropped-below-the-bound",
        "nsqd/engine/letting_go.py",
        "    while (count := min(excess(owed, settings, log), owed.depth)) > 0:\n",
        "    while (count := min(excess(owed, settings, log, 4), owed.depth)) > 0:\n",
        _RULED,
    ),
    Mutation(
        "tried-once-more-than-allowed",
        "nsqd/engine/answered.py",
        "            if most and attempts >= most:\n",
        "            if most and attempts > most:\n",
        _DYING,
    ),
    Mutation(
        "dead-after-the-first-attempt",
        "nsqd/engine/answered.py",
        "            if most and attempts >= most:\n",
        "            if most and attempts >= 1:\n",
        _DYING,
    ),
    Mutation(
        "dead-and-no-letter",
        "nsqd/server/dead_letters.py",
        "            self._turn.when_certain(topic, partial(self._written, channel, topic, staged))\n",
        '            topic.abandon()\n            self._written(channel, topic, staged, "")\n',
        _DYING,
    ),
    Mutation(
        "who-goes-back-owes-what-came-back-to-another",
        "nsqd/engine/broker.py",
        "        kept = topic.alone.without_others(channel.name, within(kept, position, channel.end))\n",
        "        kept = within(kept, position, channel.end)\n",
        (_ALONE,),
    ),
    Mutation(
        "what-came-back-to-one-is-not-in-checkpoints",
        "nsqd/storage/checkpoint.py",
        "        alone=(before.alone if before else []) + alone,\n",
        "        alone=alone,\n",
        (_ALONE,),
    ),
    Mutation(
        "headers-alike-that-are-none",
        "nsqd/log/headers.py",
        '    if b"\\\\" in first or b"".join(encoded).translate(_ALIKE) != alike:\n',
        '    if b"".join(encoded).translate(_ALIKE) != alike:\n',
        ("tests/unit/nsqd/log/test_headers.py",),
    ),
    Mutation(
        "digits-of-a-batch-with-headers-that-do-not-carry",
        "nsqd/log/encoder.py",
        "            stop = min(count, done + (1 << 4 * spare) - (low & ((1 << 4 * spare) - 1)))\n",
        "            stop = count\n",
        ("tests/unit/nsqd/protocol/test_extended.py",),
    ),
    Mutation(
        "stored-again-within-the-window",
        _DEDUP,
        "        self.repeated += 1\n        return True\n",
        "        return False\n",
        _REPEATED,
    ),
    Mutation(
        "ids-forgotten-by-a-start",
        "nsqd/storage/data_path.py",
        "                topic.published.recall(topic.log, topic.wall, now_ns)\n",
        "                pass\n",
        _REPEATED,
    ),
    Mutation(
        "id-of-what-could-not-be-stored-stays",
        _DEDUP,
        "        for key in self._staged:\n            self._drop(key)\n",
        "",
        _FAILING,
    ),
    Mutation(
        "ids-stay-when-a-sync-has-failed",
        "nsqd/server/fsync.py",
        "            topic.published.forget()\n",
        "            pass\n",
        _FAILING,
    ),
    Mutation(
        "taken-beyond-the-bound",
        "nsqd/engine/bounds.py",
        "            raise Full\n",
        "            pass\n",
        _REFUSED,
    ),
    Mutation(
        "refused-below-the-bound",
        "nsqd/engine/bounds.py",
        "excess(owed, settings, log, count, size):",
        "excess(owed, settings, log, count + 4, size):",
        _REFUSED,
    ),
    Mutation(
        "disk-nearly-full-and-taken",
        "nsqd/engine/broker.py",
        "        bound = NOTHING_MORE if self.disk_low else bound_of(topic)\n",
        "        bound = bound_of(topic)\n",
        _REFUSED,
    ),
    Mutation(
        "disk-nearly-full-for-ever",
        "nsqd/server/watermark.py",
        "        low = free < (mark * _MORE if self._broker.disk_low else mark)\n",
        "        low = self._broker.disk_low or free < mark\n",
        _REFUSED,
    ),
    Mutation(
        "what-comes-back-does-not-wait",
        "nsqd/engine/answered.py",
        "            wait_ns = delay_ns or (settings.retry_after_ns(attempts) if why != RETURNED else 0)\n",
        "            wait_ns = delay_ns\n",
        _RETRIED,
    ),
    Mutation(
        "delay-that-does-not-grow",
        "nsqd/engine/settings.py",
        "min(delay_ns << min(max(0, attempts - 1), 62), self.retry_delay_max_ns)",
        "delay_ns",
        _RETRIED,
    ),
    Mutation(
        "delay-that-grows-for-ever",
        "nsqd/engine/settings.py",
        "min(delay_ns << min(max(0, attempts - 1), 62), self.retry_delay_max_ns)",
        "delay_ns << min(max(0, attempts - 1), 62)",
        _RETRIED,
    ),
    Mutation(
        "letter-sent-back-to-everybody",
        "nsqd/engine/topic.py",
        "        self.keep_for(channel_name, first, end)\n",
        "",
        _SENT_BACK,
    ),
    Mutation(
        "letter-sent-back-to-everybody-after-a-crash",
        "nsqd/engine/topic.py",
        "            self._notes.append(notes.encode(notes.ONLY, channel_name, first=first, end=end))\n",
        "            pass\n",
        _SENT_BACK,
    ),
    Mutation(
        "letter-sent-back-and-still-there",
        "nsqd/server/http/dead_letters.py",
        "            finish(topic, [letter.seq for letter in letters])\n",
        "",
        _SENT_BACK,
    ),
    Mutation(
        "letters-that-were-only-counted-are-gone",
        "nsqd/server/http/dead_letters.py",
        "        sent = 0 if dry else await self._send(topic, back)\n",
        "        sent = await self._send(topic, back)\n",
        ('tests/integration/nsqd/test_dead_letters.py -k "dry_run"',),
    ),
    Mutation(
        "who-goes-back-owes-what-compaction-left-out",
        "nsqd/server/http/topics.py",
        "self._broker.seek_channel(topic, channel, position, claim(topic, holes))",
        "self._broker.seek_channel(topic, channel, position, claim(topic))",
        (_PLACES,),
    ),
    Mutation(
        "what-is-compacted-meanwhile-is-owed",
        "nsqd/server/http/topics.py",
        "_TRIES: Final = 4\n",
        "_TRIES: Final = 1\n",
        (_PLACES,),
    ),
    Mutation(
        "damage-taken-for-what-compaction-left-out",
        "nsqd/log/holes.py",
        " and found.why is Why.COMPACTED",
        "",
        ("tests/unit/nsqd/log/test_holes.py",),
    ),
    Mutation(
        "new-topic-is-said-to-be-there-before-it-has-its-channels",
        "nsqd/server/http/topics.py",
        "        await self._changes.flowing(topic)\n        return answer\n",
        "        return answer\n",
        (_PLACES,),
    ),
    Mutation(
        "channel-is-changed-before-it-has-what-the-topic-holds",
        "nsqd/server/http/topics.py",
        "            if not await self._changes.flowing(topic):\n",
        "            if topic:\n",
        (_PLACES,),
    ),
    Mutation(
        "topic-made-anew-is-not-waited-for",
        "nsqd/server/http/topics.py",
        "            if not await self._changes.flowing(topic):\n                break\n",
        "            if not await self._changes.flowing(topic) or True:\n                break\n",
        (_PLACES,),
    ),
)
