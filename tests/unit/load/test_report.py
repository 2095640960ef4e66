"""The report of a run: a page, JSON, CSV and the terminal."""

import csv
import json

from load.report import lines, per_second, write_report
from load.verdict import faults

CURVE = [
    {"event": "begins", "time": 100.0},
    {"time": 101.0, "users": 3, "acked": 50, "received": 40, "again": 0, "errors": 0, "latency": {"publish": [1, 2]}},  # noqa: E501
    {"time": 103.0, "users": 3, "acked": 150, "received": 150, "again": 2, "errors": 1, "latency": {}},
    {"event": "over", "time": 104.0},
]  # fmt: skip


def test_seconds_are_differences_to_the_one_before():
    first, second = per_second(CURVE)

    assert (first["second"], first["published"], first["publish p99"]) == (1.0, 50.0, 2)
    assert (second["published"], second["received"], second["again"], second["errors"]) == (50.0, 55.0, 2, 1)


def test_report_is_page_with_charts_json_and_csv(result, tmp_path):
    write_report(tmp_path, result, ["A thing was seen."], CURVE, [(101.0, 5), (102.0, 0)])

    page = (tmp_path / "report.html").read_text()
    assert "All that the profile asks for was reached." in page
    assert "A thing was seen." in page
    assert page.count("<svg") >= 4
    assert json.loads((tmp_path / "report.json").read_text())["acknowledged"] == 1000
    rows = list(csv.DictReader((tmp_path / "report.csv").read_text().splitlines()))
    assert [row["published"] for row in rows] == ["50.0", "50.0"]


def test_terminal_has_the_same_results(result):
    text = "\n".join(lines(result))

    assert "1,000 acknowledged (100/s), 1,000 received, missing 0" in text
    assert "nsqd 1: 0.40 processors, 90 MB" in text
    assert faults(result) == []
