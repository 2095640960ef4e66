"""The keepers that a node has appointed in place of homes, noted beside their copies."""

from nsqd.replication.choosing import Candidate
from nsqd.replication.copies import Copies
from nsqd.replication.durable import make_folders
from nsqd.replication.fellows import KnownFellows
from nsqd.replication.frames import Fellow
from nsqd.replication.successors import Successors
from tests.support.copied import DATA, HOME
from tests.support.simulated_disk import SimulatedDisk


def test_they_are_known_after_a_start_as_keepers_that_may_have_given_out_since():
    copies = Copies(SimulatedDisk(DATA), DATA)
    make_folders(copies.disk, copies.folder_of(HOME))
    successors = Successors(copies, print)
    assert successors.of(HOME) == ()
    file = successors.file(HOME)
    file.appointments.last = 4
    file.appointments.appoint(Candidate("n3:4150"))
    file.save()

    again = Copies(copies.disk.killed(), DATA)

    known = Successors(again, print).of(HOME)
    assert known == (Fellow(5, "n3:4150"),)
    fellows = KnownFellows(again)
    fellows.look(HOME, known)
    assert fellows.known(HOME) == (Fellow(5, "n3:4150"),)
    assert fellows.others(HOME, "n2:4150") == ["n3:4150"]
