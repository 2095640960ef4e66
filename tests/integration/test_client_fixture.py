"""The fixture comes with the package, without an import."""

from nsqclient.sync import Producer


def test_an_nsqd_in_memory_is_there_for_each_test(memory_nsqd):
    with Producer(memory_nsqd.address) as producer:
        producer.publish("t", b"x")

    assert memory_nsqd.published("t") == [b"x"]
