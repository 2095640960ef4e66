"""With any content of a data path's files, nsqd starts or refuses as documented, and invents no message.

Files of a real node are damaged: overwritten, cut, lengthened, swapped.
"""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nsqd.log.layout import NewerVersion
from nsqd.storage.metadata import BadMetadata
from tests.campaign.played import Played, a_day_behind, play
from tests.campaign.restored import read_back
from tests.support.simulated_disk import SimulatedDisk

LIVES: list[Played] = [play(seed, strict=False) for seed in (1, 3, 23, 35)]
FILES = [
    sorted(path for path, inode in life.disk.volume.walk() if inode in life.disk.volume.files)
    for life in LIVES
]

places = st.integers(0, 1 << 16)
pieces = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 5000).map(bytes),
    st.sampled_from([b"\xb5NSQ", b"NSQLOG\x02\n", b"NSQCPT\x02\n", b"NSQIDX\x02\n", b"\xff" * 64]),
)
damages = st.lists(
    st.one_of(
        st.tuples(st.just("write"), places, places, pieces),
        st.tuples(st.just("cut"), places, places),
        st.tuples(st.just("append"), places, pieces),
        st.tuples(st.just("copy"), places, places),
        st.tuples(st.just("remove"), places),
    ),
    min_size=1,
    max_size=4,
)


def damage(disk: SimulatedDisk, files: list[str], what: str, number: int, *more: object) -> None:
    path = Path(files[number % len(files)])
    try:
        content = disk.read_file(path)
    except FileNotFoundError:
        return
    if what == "remove":
        disk.remove(path)
        return
    if what == "write":
        at, piece = more
        at %= len(content) + 1
        content = content[:at] + piece + content[at + len(piece) :]
    elif what == "cut":
        content = content[: more[0] % (len(content) + 1)]
    elif what == "append":
        content += more[0]
    else:
        path = Path(files[more[0] % len(files)])
        if not disk.names(path.parent):
            return
    disk.replace(path, content, durable=True)


@given(st.integers(0, len(LIVES) - 1), damages)
def fuzz(number: int, operations: list[tuple[object, ...]]) -> None:
    life = LIVES[number]
    disk = life.disk.killed()
    for operation in operations:
        damage(disk, FILES[number], *operation)

    with a_day_behind():
        try:
            found = read_back(disk)
        except (NewerVersion, BadMetadata):
            return

    published = set(life.model.messages)
    assert set(found.seqs) <= published
    for topic in found.topics.values():
        for channel in topic.channels.values():
            assert len(set(channel.bodies)) == len(channel.bodies)
