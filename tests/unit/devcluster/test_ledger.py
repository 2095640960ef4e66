"""Whether every sample message was read."""

import pytest

from devcluster.ledger import Ledger


@pytest.fixture
def ledger():
    return Ledger(["billing", "analytics"])


def test_message_is_unread_until_every_channel_has_read_it(ledger):
    ledger.sending("a", due=1)
    ledger.read("billing", "a")
    assert (ledger.unread(), ledger.oldest_seconds(now=3)) == (1, 2)

    ledger.read("analytics", "a")

    assert (ledger.unread(), ledger.oldest_seconds(now=9), ledger.redelivered) == (0, 0, 0)


def test_unpublished_message_is_in_no_backlog(ledger):
    ledger.sending("a", due=1)
    ledger.not_published("a")

    assert ledger.unread() == 0


def test_second_read_is_counted(ledger):
    ledger.sending("a", due=1)
    for _ in range(2):
        ledger.read("billing", "a")

    assert (ledger.redelivered, ledger.unread()) == (1, 1)


def test_message_that_is_deferred_is_not_late_before_its_time(ledger):
    ledger.sending("reminder", due=6)

    assert ledger.oldest_seconds(now=2) < 0
