"""The pictures are well-formed and show each ratio and each percentile."""

from xml.etree import ElementTree as ET

from bench import plot
from bench.figures import Reading
from bench.rows import GROUPS, ROWS

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_a_ratio_is_a_bar_from_one_with_the_goal_beside_it(tmp_path):
    results = {
        "pub": {"ours": [{"rate": Reading(600)}], "Go <1.3>": [{"rate": Reading(100)}]},
        "mpub": {"ours": [{"rate": Reading(50)}], "Go <1.3>": [{"rate": Reading(100)}]},
    }

    path, _ = plot.draw(results, "ours", "Go <1.3>", tmp_path)

    texts = [text.text for text in ET.parse(path).iter(f"{NAMESPACE}text")]
    assert {"6.00", "0.50", ROWS["pub"].title, ROWS["mpub"].title, "Go <1.3> is ahead"} <= set(texts)
    bars = [bar for bar in ET.parse(path).iter(f"{NAMESPACE}rect") if bar.get("height") == "14"]
    assert [bar.get("fill") for bar in bars] == [plot.OURS, plot.PEER]
    goals = [bar for bar in ET.parse(path).iter(f"{NAMESPACE}rect") if bar.get("height") == "20"]
    assert len(goals) == 2


def test_a_percentile_is_a_dot_for_each_server_further_right_the_later(tmp_path):
    row = GROUPS["latency"][0]
    results = {
        row.name: {
            name: [{figure.name: Reading(value) for figure in row.figures}]
            for name, value in (("ours", 0.2), ("peer", 20.0))
        }
    }

    _, path = plot.draw(results, "ours", "peer", tmp_path)

    dots = list(ET.parse(path).iter(f"{NAMESPACE}circle"))
    assert len(dots) == 2 * len(row.figures)
    places = {
        color: {float(dot.get("cx")) for dot in dots if dot.get("fill") == color}
        for color in (plot.OURS, plot.PEER)
    }
    assert max(places[plot.OURS]) < min(places[plot.PEER])


def test_nothing_measured_is_an_empty_picture(tmp_path):
    for path in plot.draw({}, "ours", "peer", tmp_path):
        assert ET.parse(path).getroot().tag == f"{NAMESPACE}svg"
