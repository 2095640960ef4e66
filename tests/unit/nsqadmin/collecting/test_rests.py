"""How often nsqlookupd is asked for its list."""

from nsqadmin.collecting.rests import LIST_SHARE, MOST_S, list_rest_s


def test_a_small_list_is_asked_for_as_often_as_wished():
    assert list_rest_s(0.003) <= 0.1


def test_a_large_list_takes_its_share_of_nsqlookupd_and_no_more():
    took_s = 0.25

    assert took_s / (took_s + list_rest_s(took_s)) < LIST_SHARE


def test_a_new_node_is_seen_in_bounded_time_however_slow_the_answer():
    assert list_rest_s(60.0) == MOST_S
