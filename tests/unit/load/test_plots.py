"""Charts of a report."""

from xml.etree import ElementTree as ET

from load.plots import chart


def test_chart_has_line_for_each_series_with_points():
    svg = ET.fromstring(chart("T <1>", "ms", {"a": [(0, 1), (1, 4)], "b": [(0, 0.5)], "none": []}))

    assert len(svg.findall("polyline")) == 2
    assert "T <1>, ms" in [text.text for text in svg.findall("text")]


def test_small_values_are_seen_beside_large_ones_on_logarithmic_scale():
    svg = ET.fromstring(chart("T", "ms", {"a": [(0, 1), (1, 10), (2, 100)]}, logarithmic=True))
    heights = [float(point.split(",")[1]) for point in svg.find("polyline").attrib["points"].split()]

    assert abs((heights[0] - heights[1]) - (heights[1] - heights[2])) < 1


def test_chart_without_points_is_empty():
    assert chart("T", "ms", {"a": []}) == ""
