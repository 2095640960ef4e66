"""The growth of costs: its table, and a small run of every step that CI has time for."""

import json

import pytest

from bench import growth
from bench.rows.work import Sample


def test_every_step_stands_beside_the_smallest():
    samples = {
        step: Sample(messages=1000, events=1000, seconds=1.0, server_cpu=cpu, load_cpu=0.0)
        for step, cpu in ((10, 0.002), (100, 0.003))
    }

    rows = growth.table({"topics": samples}).splitlines()[2:]

    assert [[cell.strip() for cell in row.split("|")[2:5]] for row in rows] == [
        ["10", "2.00", "1.00"],
        ["100", "3.00", "1.50"],
    ]


@pytest.mark.slow
def test_every_growth_runs_and_every_message_is_counted(tmp_path, capsys):
    result = tmp_path / "costs.json"
    quick = ["--messages", "4000", "--most", "200", "--json", str(result), "--data-root", str(tmp_path)]

    assert growth.main(["--of", "topics,channels,connections,size", *quick]) == 0
    assert growth.main(["--of", "depth", "--messages", "4000", "--most", "1000"]) == 0

    costs = json.loads(result.read_text())
    assert {name: [int(step) for step in steps] for name, steps in costs.items()} == {
        name: [step for step in growth.GROWTHS[name].steps if step <= 200]
        for name in ("topics", "channels", "connections", "size")
    }
    assert "beside the smallest" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [result]
