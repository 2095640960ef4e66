"""The keepers that a node has appointed in place of homes, noted beside their copies."""

from nsqd.replication.choosing import Appointed, Candidate
from nsqd.replication.copies import Copies
from nsqd.replication.durable import make_folders
from nsqd.replication.fellows import KnownFellows
from nsqd.replication.frames import Fellow
from nsqd.replication.successors import Successors
from tests.support.copied import DATA, HOME
from tests.support.simulated_disk import SimulatedDisk


def test_of_former_keepers_those_that_answered_were_appointed_here():
    copies = Copies(SimulatedDisk(DATA), DATA)
    make_folders(copies.disk, copies.folder_of(HOME))
    successors = Successors(copies, print)
    assert successors.numbers(HOME) == set()
    known = successors.file(HOME).appointments
    known.former = [Appointed(2, "other:4150"), Appointed(3, "gone:4150", "ab")]
    known.current = [Appointed(4, "new:4150")]

    assert successors.numbers(HOME) == {3, 4}


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
