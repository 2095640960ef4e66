"""The units of latencies in the text form of /stats; test_http_info.py tests the rest of it."""

import pytest

from nsqd.server.statistics.stats_text import render


@pytest.mark.parametrize(
    ("value_ns", "shown"),
    [(999, "999.0ns"), (1_500, "1.5us"), (2_500_000, "2.5ms"), (61_000_000_000, "61.0s")],
)
def test_latencies_are_shown_in_unit_that_suits_them(value_ns, shown):
    topic = {"topic_name": "t", "depth": 0, "backend_depth": 0, "message_count": 0, "paused": False} | {
        "channels": [],
        "e2e_processing_latency": {"count": 1, "percentiles": [{"quantile": 1, "value": value_ns}]},
    }

    text = "".join(render({"health": "OK", "start_time": 0, "topics": [topic], "producers": None}, 0))

    assert f"e2e%: {shown}\n" in text
