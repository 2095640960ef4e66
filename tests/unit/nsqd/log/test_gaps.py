import pytest

from nsqd.log.gaps import Gap, Why


@pytest.mark.parametrize(
    ("why", "loss"),
    [(Why.DAMAGED, True), (Why.REMOVED, True), (Why.COMPACTED, False), (Why.UNUSED, False)],
)
def test_gap_is_loss_only_of_possibly_pending_messages(why, loss):
    assert Gap(1, 2, why).is_loss is loss


def test_gap_says_where_it_is_as_message_ids_do():
    assert str(Gap(0x3E8, 0x3EA, Why.DAMAGED)) == "3e8..3ea damaged"


def test_same_gap_found_twice_is_one():
    assert len({Gap(1, 2, Why.DAMAGED), Gap(1, 2, Why.DAMAGED), Gap(1, 2, Why.REMOVED)}) == 2
