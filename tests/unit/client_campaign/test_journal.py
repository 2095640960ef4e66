"""Which messages a run of the client's campaign counts as lost, repeated or explained by a fault."""

import pytest

from tests.client_campaign.journal import Handled, Journal


@pytest.fixture
def journal():
    journal = Journal()
    for number in (1, 2):
        journal.submitted[number] = 10.0
        journal.confirmed[number] = 11.0
        for channel in ("loop", "threads"):
            journal.handled[channel][number].append(Handled("a:1", b"%d" % number, 12.0))
    return journal


def test_a_run_without_faults_has_each_message_once(journal):
    assert journal.violations() == []


def test_a_message_that_was_confirmed_and_not_handled_is_lost(journal):
    del journal.handled["loop"][1]

    assert journal.violations() == ["loop: 1 lost after their OK, such as [1]"]


def test_a_message_that_failed_may_be_missing(journal):
    del journal.confirmed[1]
    journal.failed["TimeoutError"] += 1
    for channel in ("loop", "threads"):
        del journal.handled[channel][1]

    assert journal.violations() == []


def test_a_publish_without_an_outcome_is_told(journal):
    journal.submitted[3] = 10.0

    assert journal.violations() == ["1 publishes without an outcome"]


def test_a_second_delivery_needs_a_fault_beside_it(journal):
    journal.handled["loop"][1].append(Handled("a:1", b"1", 40.0))
    journal.fault("kill", 50.0)
    assert journal.violations() == ["loop: 1 handled twice without a reason, such as [1]"]

    journal.fault("kill", 20.0, 22.0)
    assert journal.violations() == []


def test_a_second_publish_needs_a_fault_before_its_confirmation(journal):
    journal.handled["loop"][1].append(Handled("b:1", b"9", 40.0))
    journal.fault("kill", 35.0)
    assert journal.violations() == ["loop: 1 handled twice without a reason, such as [1]"]

    journal.fault("kill", 10.5)
    assert journal.violations() == []


def test_a_long_fault_is_one_all_the_time(journal):
    journal.handled["loop"][1].append(Handled("a:1", b"1", 12.0))
    journal.fault("freeze", 0.0, 100.0)

    assert journal.violations() == []


def test_what_nobody_published_is_told(journal):
    journal.handled["threads"][9].append(Handled("a:1", b"9", 12.0))

    assert journal.violations() == ["threads: 1 that nobody has published"]
