"""The output of nsq_channel, without an nsqd."""

from nsqtools.nsq_channel.wording import differ, handled, in_force, messages, sent_back, sought


def test_one_message_is_in_the_singular():
    assert [messages(count) for count in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]


def test_a_dry_run_says_what_would_be_done():
    assert handled("finish", 2, dry=False) == "2 messages finished"
    assert handled("requeue", 1, dry=True) == "1 message would be requeued"


def test_a_seek_says_what_is_owed():
    assert sought(7, 3) == "3 messages pending, from sequence 7 on"


def test_what_cannot_be_sent_back_is_named():
    left = {"topic t is paused": 1, "topic u is gone": 2}

    assert sent_back(4, 4, {}, dry=False) == "4 messages sent back"
    assert sent_back(4, 0, left, dry=True) == (
        "4 messages would be sent back; 1 message left: topic t is paused; 2 messages left: topic u is gone"
    )


def test_what_is_in_force_is_said_with_the_digest_of_all():
    assert in_force("p", {"ttl": "1h", "max_depth": 5}, "0123456789abcdef") == (
        "policy p: max_depth=5, ttl=1h; digest of all 0123456789ab"
    )
    assert in_force(None, {}, "0123456789abcdef") == "no policy is in force; digest of all 0123456789ab"


def test_nsqd_that_have_other_policies_are_named():
    assert differ({"a:1": "1" * 16, "b:1": "2" * 16, "c:1": "1" * 16}) == (
        "the nsqd do not have the same policies: a:1, c:1 have 111111111111; b:1 have 222222222222"
    )
