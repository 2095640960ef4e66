"""File names of nsq_to_file."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqtools.nsq_to_file.names import Naming, format_time, host_text, revised

MOMENT = datetime(2026, 11, 3, 7, 5, 9, tzinfo=timezone(timedelta(hours=2), "CEST"))
DEFAULT = "<TOPIC>.<HOST><REV>.<DATETIME>.log"


def naming(text: str = DEFAULT, **changes) -> Naming:
    return Naming(
        **{
            "filename_format": text,
            "datetime_format": "%Y-%m-%d_%H",
            "host": "vm",
            "pid": 12224,
            **changes,
        }
    )


@pytest.mark.parametrize(
    ("layout", "written"),
    [
        ("%Y-%m-%d_%H", "2026-11-03_07"),
        ("%A %a %B %b", "Tuesday Tue November Nov"),
        ("%I:%M:%S %p", "07:05:09 AM"),
        ("%y %Z %z", "26 CEST +0200"),
        ("100%% %", "100% %"),
        ("%j %e %-d", "%j %e %-d"),
        ("v1-%Y_2", "v1-2026_2"),
    ],
)
def test_moment_is_written_by_codes_the_original_knows(layout, written):
    assert format_time(layout, MOMENT) == written


def test_default_name_has_no_revision_when_nothing_needs_one():
    assert naming().of("fa").at(MOMENT) == "fa.vm.2026-11-03_07.log"


def test_gzip_adds_its_ending_and_revision():
    names = naming(gzip=True, revisions=True).of("fb")

    assert revised(names.at(MOMENT), 0) == "fb.vm-000000.2026-11-03_07.log.gz"


def test_ending_that_is_there_is_not_added_again():
    assert naming("<TOPIC><REV>.gz", gzip=True, revisions=True).of("t").at(MOMENT) == "t<REV>.gz"


def test_name_may_have_folders_and_process():
    names = naming(
        "<TOPIC>/<PID>.<HOST><REV>.<DATETIME>.log",
        datetime_format="%Y%m%d",
        host=host_text("X-<SHORT_HOST>", "vm.example.org"),
        revisions=True,
    ).of("fc")

    assert revised(names.at(MOMENT), 2) == "fc/12224.X-vm-000002.20261103.log"


@pytest.mark.parametrize("text", ["/<DATETIME>/<TOPIC><REV>.log", "<DATETIME>/<TOPIC><REV>.log"])
def test_name_that_begins_with_slash_is_below_its_folder_all_the_same(text):
    names = naming(text, datetime_format="/%Y", revisions=True).of("t")

    assert names.at(MOMENT) == "2026/t<REV>.log"
    assert names.pattern().fullmatch(revised(names.at(MOMENT), 0))


@pytest.mark.parametrize(
    ("identifier", "text"),
    [("", "vm"), ("<HOSTNAME>", "vm.example.org"), ("<SHORT_HOST>!", "vm!"), ("fixed", "fixed")],
)
def test_host_is_short_name_or_identifier(identifier, text):
    assert host_text(identifier, "vm.example.org") == text


def test_format_without_needed_revision_is_refused():
    sentence = "missing <REV> in --filename-format when gzip, rotation, or work dir enabled"

    assert naming("<TOPIC>.log", revisions=True).problem() == sentence
    assert naming("<TOPIC>.log").problem() is None


@given(
    st.text("<>/abc.-<REV>PIDATE", max_size=20),
    st.datetimes(timezones=st.just(UTC)),
    st.integers(1, 10**6),
    st.integers(0, 10**7),
)
def test_pattern_knows_every_name_of_any_run(text, moment, pid, revision):
    names = naming(text + DEFAULT, pid=pid, revisions=True).of("t")
    another_run = naming(text + DEFAULT, pid=7, revisions=True).of("t")

    name = revised(names.at(moment), revision)

    assert another_run.pattern().fullmatch(name)


def test_pattern_leaves_other_topics_and_hosts_alone():
    pattern = naming(revisions=True).of("t").pattern()

    assert pattern.fullmatch("t.vm-000000.2026-11-03_07.log")
    assert not pattern.fullmatch("t.b.vm-000000.2026-11-03_07.log")
    assert not pattern.fullmatch("t.other-000000.2026-11-03_07.log")
