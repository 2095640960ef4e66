"""Each route has its tests: a page an address that the browser tests open, other routes a test named here."""

from pathlib import Path
from typing import Final

from nsqcore.http.router import Match
from tests.browser.addresses import ADDRESSES
from tests.integration.nsqadmin.test_security_list import table
from tests.support.stub_site import stub_site

TESTS: Final = Path(__file__).parents[2]

# Routes that are not pages, and pages that need more than an address.
NAMED: Final = {
    ("GET", "/ping"): "test_probes_may_come_under_any_name",
    ("HEAD", "/ping"): "test_probes_may_come_under_any_name",
    ("GET", "/metrics"): "test_metrics_count_requests_and_actions",
    ("HEAD", "/metrics"): "test_metrics_count_requests_and_actions",
    ("GET", "/openapi.json"): "test_nsqadmin_describes_itself",
    ("GET", "/api/topics"): "test_topics_are_the_sorted_union_of_all_nodes",
    ("GET", "/api/topics/:topic"): "test_a_topic_is_added_up_over_its_nodes_and_channels",
    ("GET", "/api/topics/:topic/:channel"): "test_a_channel_has_its_nodes_and_its_consumers",
    ("GET", "/api/nodes"): "test_nodes_are_listed_with_their_topics",
    ("GET", "/api/nodes/:node"): "test_a_node_shows_all_it_holds",
    ("GET", "/api/counter"): "test_the_counter_has_an_entry_for_each_channel_on_each_node",
    ("GET", "/api/graphite"): "test_a_rate_is_the_last_whole_interval_divided_by_its_seconds",
    ("GET", "/render"): "test_the_proxy_passes_query_and_picture_on_and_nothing_else",
    ("POST", "/api/topics"): "test_a_created_topic_is_inactive_until_somebody_publishes",
    ("POST", "/api/topics/:topic"): "test_pausing_and_emptying_reach_every_node",
    ("POST", "/api/topics/:topic/:channel"): "test_pausing_and_emptying_reach_every_node",
    ("DELETE", "/api/topics/:topic"): "test_a_deleted_channel_and_topic_are_gone_everywhere",
    ("DELETE", "/api/topics/:topic/:channel"): "test_a_deleted_channel_and_topic_are_gone_everywhere",
    ("DELETE", "/api/nodes/:node"): "test_a_tombstone_takes_the_topic_from_one_node_only",
    ("GET", "/config/:opt"): "test_config_shows_any_option_and_changes_two",
    ("PUT", "/config/:opt"): "test_config_shows_any_option_and_changes_two",
    ("GET", "/history"): "test_the_course_is_drawn_by_the_server_and_told_to_scripts",
    ("POST", "/action"): "test_everything_that_can_be_done_is_done",
    ("GET", "/messages/body"): "test_a_message_is_published_found_and_folded",
    ("GET", "/static/:asset"): "test_nothing_but_files_is_kept_by_anybody",
    ("GET", "/fonts/:asset"): "test_nothing_but_files_is_kept_by_anybody",
    ("GET", "/sign-in"): "test_one_signs_in_without_javascript",
    ("GET", "/signed-in"): "test_one_signs_in_without_javascript",
    ("POST", "/sign-out"): "test_one_signs_in_is_led_where_one_wanted_may_what_ones_role_says_and_signs_out",
}


def every_test() -> set[str]:
    found = set()
    for path in TESTS.rglob("test_*.py"):
        for line in path.read_text().splitlines():
            words = line.split("(")[0].split()
            if words[:1] == ["def"] or words[:2] == ["async", "def"]:
                found.add(words[-1])
    return found


async def test_no_route_is_without_a_test(tmp_path):
    (tmp_path / "secret").write_text("shared secret")
    people = {
        "oidc_issuer": "http://127.0.0.1:9",
        "oidc_client_id": "nsqadmin",
        "oidc_client_secret_file": str(tmp_path / "secret"),
    }
    async with stub_site(
        **people, proxy_graphite=True, graphite_url="http://127.0.0.1:9", history=True
    ) as site:
        routes = {(method, pattern) for method, pattern, _, _ in table(site)}
        router = site.daemon._server.http._router
        looked_at = {
            ("GET", found.route.pattern)
            for address in ADDRESSES
            if isinstance(found := router.find("GET", address.partition("?")[0]), Match)
        }

    assert routes - looked_at - NAMED.keys() == set()
    assert NAMED.keys() - routes == set()
    assert set(NAMED.values()) - every_test() == set()
