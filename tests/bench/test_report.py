"""The table's medians, ratios and verdicts are those of the readings."""

import pytest

from bench import kept
from bench.figures import Figure, Reading
from bench.report import Line, lines, table
from bench.rows.work import Sample


def reading(rate: float, server_us: float) -> dict[str, Reading]:
    return {"rate": Reading(rate, server_us, 0.1)}


def cells(results, names, null=None) -> list[str]:
    row = table(lines(results, names, null), names, null).splitlines()[-1]
    return [cell.strip() for cell in row.split("|")[2:-1]]


def line(figure: Figure, *values: float) -> Line:
    return Line("row", figure, list(values), [], None, None)


def test_the_ratio_is_that_of_the_medians():
    ours = [reading(300, 1.0), reading(200, 3.0), reading(900, 2.0)]
    peer = [reading(100, 4.0)]

    row = cells({"mpub": {"ours": ours, "peer": peer}}, ["ours", "peer"])

    assert row == ["msg/s", "300", "100", "3.00", "≥ 1.3", "yes", "2.00", "4.00", "0.50", "0.10"]


def test_one_server_alone_has_no_ratio_and_no_goal():
    found = lines({"mpub": {"ours": [reading(100, 1.0)]}}, ["ours"])

    assert "ratio" not in table(found, ["ours"])
    assert found[0].reached is None


def test_the_null_server_stands_at_the_end():
    results = {"pub1x2": {name: [reading(rate, 1.0)] for name, rate in (("ours", 10), ("null", 50))}}

    assert cells(results, ["ours"], "null")[-1] == "50"


def test_a_figure_that_a_server_does_not_have_is_left_empty():
    results = {"stall": {"ours": [{"metrics": Reading(3.0)}], "peer": [{}]}}

    (found,) = [one for one in lines(results, ["ours", "peer"]) if one.figure.name == "metrics"]

    assert found.values == [3.0, None]
    assert found.reached is True


@pytest.mark.parametrize(
    ("figure", "ours", "peer", "reached"),
    [
        (Figure("rate", "msg/s", goal=1.3), 13, 10, True),
        (Figure("rate", "msg/s", goal=1.3), 12.9, 10, False),
        (Figure("memory", "MiB", more=False, goal=0.5), 50, 100, True),
        (Figure("memory", "MiB", more=False, goal=0.5), 51, 100, False),
        (Figure("stats", "s", more=False, limit=1.0), 0.9, 0.1, True),
        (Figure("stats", "s", more=False, limit=1.0), 1.1, 9.0, False),
        (Figure("rate", "msg/s"), 1, 10, None),
    ],
)
def test_a_goal_bounds_the_ratio_and_a_limit_the_number_itself(figure, ours, peer, reached):
    assert line(figure, ours, peer).reached is reached


def test_events_make_the_rate_and_messages_share_the_cpu():
    both = Sample(messages=1000, events=2000, seconds=2.0, server_cpu=0.001, load_cpu=0.0)

    assert both.reading() == Reading(1000, 1.0, 0.0)


def test_readings_survive_being_kept(tmp_path):
    results = {"stall": {"ours": [{"stats": Reading(1.5), "mpub_tcp": Reading(20.0, 0.5, 0.25)}]}}

    kept.save(tmp_path / "kept.json", results, {"cpus": 2})

    assert kept.load(tmp_path / "kept.json") == results
    assert kept.load(tmp_path / "absent.json") == {}
