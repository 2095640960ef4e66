"""The picture of brokers: each broker has a bar, and those that promise most come first."""

from xml.etree import ElementTree as ET

from bench.peers.picture import draw

SVG = "{http://www.w3.org/2000/svg}"


def rates(**each):
    return {"200": {name: [{"rate": rate}] for name, rate in each.items()}}


def test_every_broker_has_a_bar_and_a_number_in_each_row():
    found = {
        "survives": {"synced": "power cut", "slow": "kill -9", "fast": "kill -9", "memory": "neither"},
        "results": {
            "both": rates(memory=9000, slow=10, fast=100, synced=50),
            "many": rates(synced=70, fast=60),
        },
    }

    root = ET.fromstring(draw(found))

    texts = [text.text for text in root.iter(f"{SVG}text")]
    names = [text for text in texts if text in found["survives"]]
    assert names == ["synced", "fast", "synced", "fast", "slow", "memory"]
    assert {"9,000", "10", "100", "50", "70", "60"} <= set(texts)
    bars = {
        bar.get("y"): float(bar.get("width")) for bar in root.iter(f"{SVG}rect") if bar.get("height") == "13"
    }
    assert len(bars) == 6
    assert max(bars.values()) == list(bars.values())[-1]  # the bar of the memory queue


def test_a_broker_whose_row_failed_is_left_out():
    found = {"survives": {"a": "kill -9", "b": "kill -9"}, "results": {"both": rates(a=5)}}
    found["results"]["both"]["200"]["b"] = [{"failed": 1}]

    assert ">b<" not in draw(found)
