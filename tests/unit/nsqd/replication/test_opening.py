import random

from nsqd.log.disk import Disk
from nsqd.replication.opening import CopyOpener, origin_of
from nsqd.storage.topic_store import store_of
from tests.campaign.carried.site import CarryingSite


def carried_topic():
    site = CarryingSite(2, random.Random(5), strict=False)
    site.nodes[1].channel("t", "c")
    for _ in range(4):
        site.advance(1)
        site.settle()
    for number in range(5):
        site.nodes[1].publish("t", b"%d" % number)
    site.settle()
    site.kill(1)
    site.advance(32)
    return site, site.nodes[2].broker.topics["t"].carried[0]


def test_a_copy_says_which_node_wrote_it():
    site, topic = carried_topic()

    assert origin_of(site.disks[2], store_of(topic).folder) == 1


def test_a_folder_without_a_log_says_nothing(tmp_path):
    (tmp_path / "00000001.log").write_bytes(b"no log")

    assert origin_of(Disk(), tmp_path) == 0


def test_what_was_finished_is_known_when_it_is_opened_again():
    site, topic = carried_topic()
    node = site.nodes[2]
    opener = CopyOpener(node.data, node.broker)
    assert opener.held(topic) == topic.channels["c"].owed(0, topic.log.next_seq)
    first = opener.held(topic)[0][0]
    topic.channels["c"].finished.add(first, first + 2)
    folder = store_of(topic).folder

    opener.close(topic)
    again = opener.open("t", node.identity, folder, site.now)

    assert again.channels["c"].owed(0, again.log.next_seq) == [(first + 2, first + 5)]
