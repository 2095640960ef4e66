"""Mutations of the command line tools."""

from typing import Final

from tests.campaign.mutations.mutation import Mutation

TOOLS: Final = (
    Mutation(
        "what-is-not-confirmed-is-done",
        "nsqtools/to_nsq/reading.py",
        "if error is None and publishing.confirmed < publishing.sent:",
        "if False:",
        ("tests/unit/nsqtools/to_nsq/test_reading.py",),
    ),
    Mutation(
        "one-of-two-is-enough",
        "nsqtools/to_nsq/publishing.py",
        "self.confirmed += not missing",
        "self.confirmed += 1",
        ('tests/integration/nsqtools/test_to_nsq.py -k "every_nsqd or missing or failing"',),
    ),
    Mutation(
        "no-rotation-by-time",
        "nsqtools/nsq_to_file/rotation.py",
        "if 0 < self.interval < age:",
        "if False:",
        ("tests/unit/nsqtools/nsq_to_file",),
    ),
    Mutation(
        "a-file-is-overwritten",
        "nsqtools/nsq_to_file/archive.py",
        "os.link(path, final)  # unlike",
        "os.replace(path, final); sync_folder(final.parent); return True  # unlike",
        ("tests/unit/nsqtools/nsq_to_file",),
    ),
    Mutation(
        "finished-before-the-fsync",
        "nsqtools/nsq_to_file/topic_writer.py",
        """\
        await self._blocking(supply, self._archive.sync)
        for delivery in self._held:
            delivery.finish()""",
        """\
        for delivery in self._held:
            delivery.finish()
        await self._blocking(supply, self._archive.sync)""",
        ("tests/unit/nsqtools/nsq_to_file/test_topic_writer.py",),
    ),
    Mutation(
        "supplied-while-the-disk-stalls",
        "nsqtools/supply.py",
        "            self._tell(0)",
        "            pass",
        (
            "tests/unit/nsqtools/test_supply.py",
            'tests/integration/nsqtools/test_nsq_to_file.py -k "stalls"',
            'tests/integration/nsqtools/test_nsq_tail.py -k "stalls"',
        ),
    ),
    Mutation(
        "folders-on-two-devices",
        "nsqtools/nsq_to_file/archiving.py",
        "if lies_apart:",
        "if False:",
        ('tests/integration/nsqtools/test_nsq_to_file.py -k "different_devices"',),
    ),
    Mutation(
        "held-until-the-time-out",
        "nsqtools/nsq_to_file/topic_writer.py",
        "HELD_SHARE: Final = 0.5",
        "HELD_SHARE: Final = 5.0",
        ('tests/integration/nsqtools/test_nsq_to_file.py -k "held_for_long"',),
    ),
    Mutation(
        "a-new-name-is-not-synced",
        "nsqtools/nsq_to_file/writing.py",
        """\
            sync_folder(self.path.parent)
            self._in_folder""",
        "            self._in_folder",
        ("tests/unit/nsqtools/nsq_to_file",),
    ),
    Mutation(
        "a-careless-pattern-may-take-years",
        "nsqcore/plain_patterns.py",
        "return not self._is_open and self._steps <= _LONGEST_NAME**_MOST_REPEATS",
        "return not self._is_open",
        ("tests/unit/nsqcore/test_plain_patterns.py",),
    ),
    Mutation(
        "a-blank-means-another-thing",
        "nsqcore/plain_patterns.py",
        '"s": r"\\t\\n\\f\\r "}',
        '"s": r"\\s"}',
        ("tests/unit/nsqcore/test_patterns.py tests/unit/nsqcore/test_plain_patterns.py",),
    ),
    Mutation(
        "a-topic-is-copied-onto-itself",
        "nsqtools/nsq_to_nsq/options.py",
        "if both and (not",
        "if False and (not",
        ("tests/integration/nsqtools/test_refusals.py",),
    ),
    Mutation(
        "finished-without-a-destination",
        "nsqtools/nsq_to_nsq/copying.py",
        """\
            delivery.requeue(None, backoff=True)
            return""",
        """\
            delivery.finish()
            return""",
        ("tests/integration/nsqtools/test_nsq_to_nsq.py",),
    ),
    Mutation(
        "a-restart-makes-a-negative-rate",
        "nsqtools/nsq_stat/figures.py",
        """\
        if new.messages < old.messages:
            continue
""",
        "",
        ("tests/unit/nsqtools/nsq_stat",),
    ),
)
