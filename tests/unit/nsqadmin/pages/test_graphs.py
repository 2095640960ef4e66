from urllib.parse import parse_qs, urlsplit

import pytest

from nsqadmin.options import NsqadminOptions
from nsqadmin.pages import graphs

OPTIONS = NsqadminOptions(graphite_url="http://graphite:8080/")


def test_statistics_are_summed_over_all_nodes_where_statsd_puts_them():
    assert graphs.target(OPTIONS, "message_count", "orders") == (
        'summarize(sumSeries(stats.counters.nsq.*.topic.orders.message_count.count),"60sec","avg")'
    )
    assert graphs.target(OPTIONS, "depth", "orders", "billing") == (
        'summarize(sumSeries(stats.gauges.nsq.*.topic.orders.channel.billing.depth),"60sec","avg")'
    )


@pytest.mark.parametrize(
    ("prefix", "expected"), [("nsq.%s", "nsq.*."), ("nsq.%s.", "nsq.*."), ("", ""), ("flat", "flat.")]
)
def test_prefix_gets_dot_only_when_it_has_none(prefix, expected):
    assert graphs.host_prefix(NsqadminOptions(statsd_prefix=prefix)) == expected


def test_empty_format_leaves_key_alone():
    options = NsqadminOptions(statsd_counter_format="", statsd_gauge_format="")

    assert graphs.stored(options, "a.message_count") == "a.message_count"
    assert graphs.stored(options, "a.depth") == "a.depth"


def test_names_lose_what_statsd_does_not_store():
    assert graphs.clean("temp#ephemeral") == "tempephemeral"
    assert graphs.clean("a b/c") == "a_b-c"


def test_pictures_come_from_graphite_or_through_proxy_below_base_path():
    direct = graphs.graphs_of(OPTIONS, "orders")
    proxied = NsqadminOptions(graphite_url="http://graphite", proxy_graphite=True, base_path="/nsq")

    assert [graph.name for graph in direct] == ["depth", "messages"]
    assert direct[0].large.startswith("http://graphite:8080/render?target=")
    assert graphs.graphs_of(proxied, "orders")[0].picture.startswith("/nsq/render?target=")
    assert "sumSeries" in parse_qs(urlsplit(direct[0].picture).query)["target"][0]
    assert graphs.graphs_of(NsqadminOptions(), "orders") == []


def test_reader_chooses_time_frame_and_may_have_none():
    queries = [
        parse_qs(urlsplit(graphs.graphs_of(OPTIONS, "orders", frame=frame)[0].picture).query)
        for frame in ("", "168h", "nonsense")
    ]

    assert [query["from"] for query in queries] == [["-2h"], ["-168h"], ["-2h"]]
    assert (queries[0]["width"], queries[0]["until"]) == (["120"], ["-1min"])
    assert graphs.graphs_of(OPTIONS, "orders", frame="off") == []


def test_pages_allow_pictures_from_graphite_without_proxy():
    assert graphs.origin(OPTIONS) == "http://graphite:8080"
    assert graphs.origin(NsqadminOptions(graphite_url="http://u:p@g/x")) == "http://g"
    assert graphs.origin(NsqadminOptions(graphite_url="http://g", proxy_graphite=True)) == ""
    assert graphs.origin(NsqadminOptions(graphite_url="http://g; script-src *")) == ""


def test_addresses_do_not_give_away_password_of_graphite():
    graph, *_ = graphs.graphs_of(NsqadminOptions(graphite_url="http://bob:secret@g/x"), "orders", "billing")

    assert graph.large.startswith("http://g/x/render?")
    assert graph.picture.startswith("http://g/x/render?")
