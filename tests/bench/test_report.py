"""The report's medians and ratios are those of the samples."""

from bench.report import as_json, table
from bench.rows import Sample


def sample(rate: int, server_us: float) -> Sample:
    return Sample(
        messages=1000, events=1000, seconds=1000 / rate, server_cpu=server_us / 1000, load_cpu=0.0001
    )


def test_the_ratio_is_that_of_the_medians():
    ours = [sample(300, 1.0), sample(200, 3.0), sample(900, 2.0)]
    peer = [sample(100, 4.0)]

    last = table({"mpub": [ours, peer]}, ["ours", "peer"]).splitlines()[-1]

    assert [cell.strip() for cell in last.split("|")[2:-1]] == [
        "300", "2.00", "100", "4.00", "3.00", "0.50", "0.10",
    ]  # fmt: skip


def test_one_server_alone_has_no_ratio_columns():
    head = table({"mpub": [[sample(100, 1.0)]]}, ["ours"]).splitlines()[0]

    assert "ratio" not in head


def test_events_make_the_rate_and_messages_share_the_cpu():
    both = Sample(messages=1000, events=2000, seconds=2.0, server_cpu=0.001, load_cpu=0.0)

    assert both.rate == 1000
    assert both.server_us == 1.0


def test_json_keeps_every_sample():
    found = as_json({"sub": [[sample(100, 1.0), sample(200, 1.0)]]}, ["ours"])

    assert [run["rate"] for run in found["sub"]["ours"]] == [100, 200]
