"""Mutations of what a look into the log promises: policies in the random work, headers, who is owed what."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

# Of these seeds policies are in force.
_RULED: Final = tuple(f"kill --seed {seed} --every 5 --stop" for seed in (14, 17, 26, 44, 50, 2, 5, 35))
_DYING: Final = tuple(f"kill --seed {seed} --stop" for seed in (35, 41, 47, 29))
_ALONE: Final = "tests/unit/nsqd/engine/test_alone.py"

LOOKING: Final = (
    Mutation(
        "expired-before-its-time",
        "nsqd/engine/letting_go.py",
        "    oldest_ns = now_ns + offset_ns - settings.ttl_ns\n",
        "    oldest_ns = now_ns + offset_ns - settings.ttl_ns // 4\n",
        _RULED,
    ),
    Mutation(
        "expired-and-given-all-the-same",
        "nsqd/engine/letting_go.py",
        "    ranges = channel.give_up_below(position)\n",
        "    ranges = channel.give_up_below(0)\n",
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
)
