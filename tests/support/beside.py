"""Runs the tests that prove equal behaviour with the original's programs in place of ours.

docs/evidence/compatibility.md names a test for each behaviour. If it says "same", that test must also pass
with the original; otherwise the word is wrong. With ``NSQ_UNDER_TEST=original`` tests start the original's
programs from ``NSQ_GO_BIN`` or PATH. Only the tests of such rows run then, and those of :data:`DIFFERS`
must fail.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

OURS: Final = os.environ.get("NSQ_UNDER_TEST") != "original"
"""False where a test has the original before it: what only ours has is not asked for then."""

_PAGE: Final = Path(__file__).parents[2] / "docs" / "evidence" / "compatibility.md"
_ROW: Final = re.compile(r"\| (.+?) \| (.+?) \| (.*?) ?\|")
_PROOF: Final = re.compile(r"`(test_\w+)`")
_SAME: Final = re.compile(r"\bsame\b")


class Row(NamedTuple):
    """A behaviour that the page says is the same as the original's."""

    section: str
    behaviour: str
    proofs: tuple[str, ...]


def same_rows() -> list[Row]:
    """Return every row of the page that says "same"."""
    found, section = [], ""
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = line.strip("# ")
        elif (row := _ROW.fullmatch(line)) and _SAME.search(row[2]):
            found.append(Row(section, row[1], tuple(_PROOF.findall(row[3]))))
    return found


ALONE: Final[dict[str, str]] = {
    "Headers, as youzan's NSQ has them": "another project's nsqd has them, of which there is no program here",
    "The Python client": "go-nsq is a library; the client's own tests run with the original's nsqd as well",
    "`--enable-experiment": "of its master branch; the programs are those of the release",
    "`zone_local_msg_count`": "of its master branch",
    "other experiments": "of its master branch",
    "notifications": "what is told of is asked for on a page, and pages are ours",
    "percentiles of several nodes": "the keys stand in the row of the JSON API; the pages are ours",
}
"""Sections, and beginnings of rows, of which the original has no program, and why."""


def is_alone(row: Row) -> bool:
    """Say whether the original has no program on which this row could be tested."""
    return row.section in ALONE or row.behaviour.startswith(tuple(ALONE))


def proofs() -> frozenset[str]:
    """Return the tests of these rows that can run with the original."""
    return frozenset(name for row in same_rows() if not is_alone(row) for name in row.proofs)


# These tests start both the original and ours themselves.
WITH_BOTH: Final = frozenset(
    ("test_flags_of_original_are_known_with_their_defaults", "test_original_says_the_same")
)

_PAGES = "it looks at pages as well, which are ours"
_HEAD = "HEAD is for probes, and ours"
_WORDS = "it says so in other words"
_MEMORY = "what it has in memory is lost by a kill"

DIFFERS: Final[dict[str, str]] = {
    # nsqd
    "test_ids_are_not_used_again": "its ids ascend with the clock, not by the topic; and " + _MEMORY,
    "test_messages_can_be_finished_after_change_of_node_id[kill -9]": _MEMORY,
    "test_delay_beyond_limit_is_cut_down_to_it[18446744073709551615]": "it wraps round to none",
    "test_nsqd_answers_who_has_ended_its_side[HEAD /ping-\\r\\n\\r\\n]": _HEAD,
    "test_command_or_half_of_one_is_sign_of_life": "half of one is none there",
    "test_producer_of_several_topics_is_listed_with_all_of_them": "it shows one of them",
    "test_mpub_body_of_exactly_limit_is_taken_and_one_byte_more_is_not": "it reads no further",
    "test_signal_ends_it_in_order_with_exit_code_0[1]": "SIGHUP kills it",
    "test_node_is_healthy_after_disk_is_freed_without_publishes": "a publish has to succeed",
    "test_known_path_with_another_method_says_which_are_allowed[POST-/ping-GET, HEAD, OPTIONS]": _HEAD,
    "test_prefix_and_level_of_log_can_be_told": "it logs an error of a client twice",
    "test_malformed_answer_is_failure": _WORDS,
    "test_address_that_is_none_is_refused_with_guess": "it makes unix sockets of such names",
    "test_unix_socket_left_by_crash_does_not_keep_it_from_starting": "there it does",
    'test_metadata_that_cannot_be_read_is_one_line[{"topics":[{"nam":"x"}]}]': "it passes over such a topic",
    # nsqlookupd
    "test_errors_are_status_and_code[POST-/topic/delete?topic=*-400-INVALID_ARG_TOPIC]": "* is all there",
    "test_errors_are_status_and_code[POST-/topic/tombstone?topic=*&node=a:1-400-INVALID_ARG_TOPIC]": (
        "* is all there"
    ),
    "test_error_is_answered_and_connection_closed[IDENTIFY\\n\\xff\\xff\\xff\\xfb-"
    "E_BAD_BODY IDENTIFY failed to read body size]": "it ends of it",
    "test_error_is_answered_and_connection_closed[IDENTIFY\\n\\x7f\\xff\\xff\\xff-"
    "E_BAD_BODY IDENTIFY body too big 2147483647 > 1048576]": "it waits for all of them",
    "test_error_is_answered_and_connection_closed[command15-"
    "E_INVALID line is longer than 65536 bytes]": "it waits for the end of the line",
    # nsqadmin
    "test_topic_is_added_up_over_its_nodes_and_channels": "each node is shown with the sum of all",
    "test_unknown_resource_is_404_with_its_code": "what does not exist is 502 with nsqd's code in it",
    "test_deleted_channel_and_topic_are_gone_everywhere": "what is gone is 200 with nsqd's code in it",
    "test_frozen_nsqd_is_named_and_the_others_statistics_are_shown": _PAGES,
    "test_dead_nsqlookupd_is_warning_and_two_are_failure": _PAGES,
    "test_proxy_passes_query_and_picture_on_and_no_page": "it passes the cookies of a browser on",
    "test_tombstone_is_no_way_to_post_to_any_address": "it posts wherever it is told",
    # the tools
    "test_signal_ends_it_with_0_and_read_records_are_published": "it drops that",
    "test_records_become_messages_also_the_last": "it takes the last byte for a delimiter",
    "test_nsqds_get_all_records_in_order": "it takes the last byte for a delimiter",
    "test_records_confirmed_by_failing_nsqd_are_there_after_restart": _WORDS,
    "test_two_addresses_share_messages": _WORDS,
    "test_unreachable_address_is_left_out": _WORDS,
    "test_full_disk_ends_it_with_nothing_finished": _WORDS,
    "test_destination_that_is_killed_and_comes_back_gets_everything": _WORDS,
    "test_kills_lose_nothing_that_was_finished[-work-dir -gzip -rotate-interval=200ms -skip-empty-files]": (
        "it dies of idle rotation with a work folder"
    ),
    "test_signal_ends_it_with_0_and_nothing_is_printed_twice": "SIGHUP ends ours only",
    "test_signal_ends_it_with_0_and_nothing_is_written_twice": "a signal at the start kills it",
    "test_signal_ends_it_with_0_and_nothing_is_copied_twice": "a signal at the start kills it",
}
"""Tests of such rows, or single cases of them, that the original does not pass, or not always, and why."""


def difference(test: str) -> str | None:
    """Return why the original does not pass this test, or None if it must pass."""
    return DIFFERS.get(test) or DIFFERS.get(test.partition("[")[0])
