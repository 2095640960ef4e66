import errno

from nsqd.server.replication.troubles import Troubles

SECOND = 1_000_000_000


def test_what_has_failed_is_tried_again_after_a_second_and_a_reason_is_logged_when_it_is_new():
    now = 0
    troubles = Troubles(lambda: now)
    full, broken = OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "broken")

    assert [troubles.failed("a", full), troubles.failed("a", full), troubles.failed("a", broken)] == [
        *(True, False, True)
    ]
    assert [troubles.may_try(what) for what in "ab"] == [False, True]
    now += SECOND
    assert troubles.may_try("a")
    troubles.worked("a")
    assert troubles.failed("a", broken)
