"""The benches of nsqlookupd and of starts, at a very small size."""

import re

from bench import fleet, start


def test_a_small_fleet_is_measured(capsys):
    fleet.main(["--nsqds=3", "--topics=5", "--seconds=0.2", "--rate=20"])

    *_, row = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\| 3 (\| [\d.]+ ){8}\|", row)


def test_every_nsqd_announces_every_channel():
    batches, sizes = fleet.announcement(100, 2)

    assert b"".join(batches).count(b"REGISTER ") == sum(sizes) == 200
    assert max(sizes) == fleet.PIPELINE


def test_starts_are_measured(capsys):
    start.main(["--repeat=1"])

    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == list(start.DAEMONS)
