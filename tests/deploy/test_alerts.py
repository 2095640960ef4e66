"""Each alert is fired by its own fault, over metrics of real daemons, and by nothing else."""

import re
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from bench.ports import free_port
from tests.deploy.prometheus import firing, metrics_in, problems, promtool, rules_of, snapshot
from tests.deploy.release import CHART, NAMESPACE, render
from tests.support.waiting import wait_until
from tests.support.wire import Wire

BROKER, LOOKUP, ADMIN = "demo-nsq-nsqd-0", "demo-nsq-nsqlookupd-0", "demo-nsq-nsqadmin-0"
EVERYTHING = {
    "monitoring": {"rules": {"enabled": True}},
    "archive": {
        "topics": [{"name": "a", "topic": "a", "channel": "a"}],
        "claimName": "lake",
        "image": {"repository": "archive"},
    },
}
# Metrics of Kubernetes itself: of the kubelet and of kube-state-metrics.
FOREIGN = {
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
    "kube_cronjob_status_last_successful_time",
    "kube_cronjob_created",
}


@pytest.fixture(scope="module")
def rules(chart):
    return rules_of(render(chart, EVERYTHING))


@pytest.fixture
def fired(tmp_path, rules):
    """A check that exactly these alerts fire after so many minutes: alert -> how often."""

    def check(timelines, minute, rules=rules, **alerts):
        assert firing(tmp_path, rules, timelines, minute, alerts) == ""

    return check


@pytest.fixture
def nsqd(cluster):
    return cluster.nsqd("--msg-timeout=100ms", "--sync-every=1")


def with_thresholds(chart, **thresholds):
    rules = EVERYTHING["monitoring"]["rules"] | {"thresholds": thresholds}
    return rules_of(render(chart, EVERYTHING | {"monitoring": {"rules": rules}}))


def two_lookups(minutes):
    """Both nsqlookupd are ready, so that no alert about them fires."""
    names = [f'nsqlookupd_ready{{namespace="{NAMESPACE}",pod="demo-nsq-nsqlookupd-{i}"}}' for i in range(2)]
    return [dict.fromkeys(names, "1")] * minutes


def held(moment, minutes):
    return [moment] * minutes


def changed(moment, minutes, **statistics):
    """Snapshots of a healthy daemon, with metrics changed to values that no daemon reaches within a test."""
    found = {name: statistics.get(name.partition("{")[0], value) for name, value in moment.items()}
    for name in statistics:
        assert any(series.startswith(f"{name}{{") for series in found), f"nothing says {name}"
    return [found] * minutes


def publish(nsqd, topic, count=1):
    nsqd.post(f"/mpub?topic={topic}", b"\n".join([b"message"] * count))


def channel(nsqd, topic="orders", name="billing"):
    nsqd.post(f"/topic/create?topic={topic}")
    nsqd.post(f"/channel/create?topic={topic}&channel={name}")


def publish_five(nsqd):
    publish(nsqd, "orders", 5)


def pause_topic(nsqd):
    nsqd.post("/topic/pause?topic=orders")


def ephemeral_messages(nsqd):
    channel(nsqd, name="look%23ephemeral")
    channel(nsqd, "shown%23ephemeral")
    for topic in ("orders", "shown%23ephemeral", "alone%23ephemeral"):
        publish(nsqd, topic, 5)


def subscribed(nsqd, topic="orders", name="billing"):
    wire = Wire(("127.0.0.1", nsqd.tcp_port))
    wire.identify(heartbeat_interval=60_000)
    wire.subscribe(topic, name)
    return wire


def registered(nsqd):
    found = [float(v) for k, v in snapshot(nsqd, BROKER).items() if k.startswith("nsqd_lookupd_connected")]
    return found == [1.0]


def test_rules_are_read_by_prometheus(tmp_path, rules):
    assert problems(tmp_path, rules) == ""


def test_alerts_are_silent_on_healthy_cluster(cluster, fired):
    lookup = cluster.nsqlookupd()
    nsqd = cluster.nsqd()
    channel(nsqd)
    consumer = subscribed(nsqd)
    wait_until(lambda: registered(nsqd), "it is registered")
    timelines = [held(snapshot(nsqd, BROKER), 30), two_lookups(30)]
    assert lookup.is_running()

    fired(timelines, 29)
    consumer.close()


def test_channel_without_consumers_fires_alert(nsqd, fired):
    channel(nsqd)
    publish(nsqd, "orders", 5)
    timelines = [held(snapshot(nsqd, BROKER), 20), two_lookups(20)]

    fired(timelines, 9)
    fired(timelines, 11, NsqNoConsumers=1)


def test_paused_channel_is_not_told(nsqd, fired):
    channel(nsqd)
    publish(nsqd, "orders", 5)
    nsqd.post("/channel/pause?topic=orders&channel=billing")

    fired([held(snapshot(nsqd, BROKER), 20), two_lookups(20)], 19)


def test_broker_unknown_to_its_consumers_fires_alert(cluster, fired):
    lonely, found = cluster.nsqd(), cluster.nsqd()
    for each in (lonely, found):
        channel(each)
    publish(lonely, "orders")
    consumer = subscribed(found)
    timelines = [
        held(snapshot(lonely, BROKER), 20),
        held(snapshot(found, "demo-nsq-nsqd-1"), 20),
        two_lookups(20),
    ]

    fired(timelines, 19, NsqConsumersMissing=1)
    consumer.close()


GONE_WITH = {
    "messages of a channel": ([channel, publish_five], 1),
    "messages of a topic without channels": ([publish_five], 1),
    "messages of a paused topic": ([channel, pause_topic, publish_five], 1),
    "ephemeral messages": ([ephemeral_messages], 0),
    "nothing": ([channel], 0),
}


@pytest.mark.parametrize("what", GONE_WITH)
def test_broker_that_is_gone_with_messages_fires_alert(nsqd, fired, what):
    steps, count = GONE_WITH[what]
    for step in steps:
        step(nsqd)
    timeline = [*held(snapshot(nsqd, BROKER), 3), *[None] * 30]

    fired([timeline, two_lookups(33)], 30, **{"NsqdGoneWithMessages": 1} if count else {})


def test_broker_that_was_drained_between_two_scrapes_is_not_told(nsqd, fired):
    channel(nsqd)
    publish(nsqd, "orders", 5)
    before = snapshot(nsqd, BROKER)
    nsqd.post("/channel/empty?topic=orders&channel=billing")
    nsqd.post("/drain")
    assert nsqd.get("/drain")["scraped_with_backlog"]  # so the drain command waits for one more scrape
    timeline = [*held(before, 3), snapshot(nsqd, BROKER), *[None] * 30]

    fired([timeline, two_lookups(34)], 31)


def test_messages_left_by_drain_fire_alert(nsqd, fired):
    channel(nsqd)
    publish(nsqd, "orders", 5)
    nsqd.post("/drain")
    timeline = [*held(snapshot(nsqd, BROKER), 3), *[None] * 30]
    alerts = {"NsqdDrainLeftMessages": 1, "NsqdGoneWithMessages": 1}

    fired([timeline, two_lookups(33)], 20, **alerts)


def test_growing_channel_fires_alert(nsqd, fired, chart):
    channel(nsqd)
    consumer = subscribed(nsqd)
    timeline = []
    for _ in range(40):
        publish(nsqd, "orders", 10)
        timeline.append(snapshot(nsqd, BROKER))
    rules = with_thresholds(chart, depth=100)

    fired([timeline, two_lookups(40)], 12, rules)
    fired([timeline, two_lookups(40)], 39, rules, NsqChannelGrows=1)
    consumer.close()


def test_old_message_in_channel_fires_alert(nsqd, fired, chart):
    channel(nsqd)
    publish(nsqd, "orders", 600)
    consumer = subscribed(nsqd)
    timeline = []
    for _ in range(30):
        # In each minute one message is published and one finished, while hundreds wait.
        publish(nsqd, "orders")
        consumer.send(b"RDY 1\n")
        message = consumer.message()
        consumer.send(b"RDY 0\n", b"FIN " + message.id + b"\n")
        wait_until(
            lambda: nsqd.get("/stats?format=json")["topics"][0]["channels"][0]["in_flight_count"] == 0, "done"
        )
        timeline.append(snapshot(nsqd, BROKER))

    alerts = {"NsqChannelWaits": 1}
    fired([timeline, two_lookups(30)], 29, rules=with_thresholds(chart), **alerts)
    consumer.close()


def test_messages_that_are_not_answered_in_time_are_told(nsqd, fired):
    channel(nsqd)
    publish(nsqd, "orders", 50)
    consumer = subscribed(nsqd)
    timeline = []
    for _ in range(25):
        publish(nsqd, "orders")
        consumer.send(b"RDY 1\n")
        before = nsqd.get("/stats?format=json")["topics"][0]["channels"][0]["timeout_count"]
        wait_until(
            lambda before=before: (
                nsqd.get("/stats?format=json")["topics"][0]["channels"][0]["timeout_count"] > before
            ),
            "one timed out",
        )
        timeline.append(snapshot(nsqd, BROKER))

    fired([timeline, two_lookups(25)], 24, NsqTimeOuts=1)
    consumer.close()


def test_dead_letters_fire_alert(nsqd, fired):
    channel(nsqd, "orders.billing.dead", "look")
    before = snapshot(nsqd, BROKER)
    publish(nsqd, "orders.billing.dead", 3)
    timeline = [*held(before, 5), *held(snapshot(nsqd, BROKER), 5)]

    fired([timeline, two_lookups(10)], 8, NsqDeadLetters=1)


def test_first_dead_letter_of_new_topic_fires_alert(nsqd, fired):
    before = snapshot(nsqd, BROKER)
    publish(nsqd, "orders.billing.dead")
    timeline = [*held(before, 5), *held(snapshot(nsqd, BROKER), 40)]

    alerts = {"NsqDeadLetters": 1}
    fired([timeline, two_lookups(45)], 4)
    fired([timeline, two_lookups(45)], 5, **alerts)
    fired([timeline, two_lookups(45)], 44)


@pytest.mark.parametrize("again", [BROKER, f'{BROKER}",instance="10.0.0.2:4151'])
def test_old_dead_letters_fire_no_alert_after_crash(nsqd, fired, again):
    publish(nsqd, "orders.billing.dead", 3)
    name = "nsqd_topic_messages_total"
    before = changed(snapshot(nsqd, BROKER), 20, **{name: "5000"})
    after = changed(snapshot(nsqd, again), 20, **{name: "4999"})
    timelines = [[*before, None, None, *after], two_lookups(42)]

    for minute in (19, 22, 25, 30):
        fired(timelines, minute)


def test_broker_unknown_to_nsqlookupd_fires_alert(cluster, fired):
    nsqd = cluster.nsqd(f"--lookupd-tcp-address=127.0.0.1:{free_port()}")

    timelines = [held(snapshot(nsqd, BROKER), 10), two_lookups(10)]
    fired(timelines, 9, NsqdNotRegistered=1)


def test_slow_fsyncs_fire_alert(nsqd, fired, chart):
    timeline = []
    for _ in range(25):
        publish(nsqd, "orders")
        timeline.append(snapshot(nsqd, BROKER))

    timelines = [timeline, two_lookups(25)]
    fired(timelines, 24, rules=with_thresholds(chart, fsyncSeconds=3600))
    fired(timelines, 24, rules=with_thresholds(chart, fsyncSeconds=0), NsqdFsyncSlow=1)


@pytest.mark.parametrize(
    ("figure", "value", "alert"),
    [
        ("nsqd_healthy", "0", "NsqdUnhealthy"),
        ("nsqd_topic_readable", "0", "NsqdMessagesUnreadable"),
        ("nsqd_checkpoint_lag_seconds", "300", "NsqdCheckpointLate"),
        ("nsqd_under_replicated_topics", "2", "NsqdUnderReplicated"),
        ("nsqd_owned_unreadable_topics", "1", "NsqdCopyUnreadable"),
    ],
)
def test_state_of_broker_fires_its_alert(nsqd, fired, figure, value, alert):
    channel(nsqd)
    timelines = [changed(snapshot(nsqd, BROKER), 10, **{figure: value}), two_lookups(10)]

    fired(timelines, 9, **{alert: 1})


@pytest.mark.parametrize(
    ("series", "alert"),
    [
        ("nsqd_channel_lost_total{", "NsqdMessagesLost"),
        ("nsqd_failovers_total{", "NsqdFailover"),
        ("not_a_member", "NsqdReplicationRefused"),
    ],
)
def test_event_of_broker_fires_its_alert(nsqd, fired, series, alert):
    channel(nsqd)
    before = snapshot(nsqd, BROKER)
    (found,) = [one for one in before if series in one]
    timeline = held(before, 20) + held(before | {found: "3"}, 10)

    fired([timeline, two_lookups(30)], 19)
    fired([timeline, two_lookups(30)], 22, **{alert: 1})


@pytest.mark.parametrize("again", [BROKER, f'{BROKER}",instance="10.0.0.2:4151'])
def test_messages_that_are_found_lost_before_the_first_scrape_are_told(nsqd, fired, again):
    channel(nsqd)
    before = held(snapshot(nsqd, BROKER), 20)
    after = changed(snapshot(nsqd, again), 20, nsqd_channel_lost_total="7")
    alerts = {"NsqdMessagesLost": 1}

    timelines = [[*before, None, None, *after], two_lookups(42)]
    fired(timelines, 21)
    fired(timelines, 23, **alerts)
    fired(timelines, 41)
    fired([after, two_lookups(20)], 1, **alerts)


def volume(available):
    labels = f'{{namespace="{NAMESPACE}",persistentvolumeclaim="data-demo-nsq-nsqd-0"}}'
    return {
        f"kubelet_volume_stats_available_bytes{labels}": str(available),
        f"kubelet_volume_stats_capacity_bytes{labels}": "1000",
    }


def test_nearly_full_volume_fires_alert(fired):
    alerts = {"NsqdDiskLow": 1}

    fired([held(volume(99), 10), two_lookups(10)], 9, **alerts)
    fired([held(volume(101), 10), two_lookups(10)], 9)


def test_filling_volume_fires_alert_early(fired):
    filling = [volume(450 - 4 * minute) for minute in range(40)]

    fired([filling, two_lookups(40)], 39, NsqdDiskFullSoon=1)
    fired([held(volume(290), 40), two_lookups(40)], 39)


def test_nsqlookupd_waiting_for_brokers_fires_alert(cluster, fired):
    known = cluster.nsqlookupd("--reconnect-interval=0s")
    brokers = [cluster.nsqd(lookupds=[known]) for _ in range(3)]
    wait_until(lambda: len(known.get("/nodes")["producers"]) == len(brokers), "they are registered")
    # One that was added, which they do not know yet.
    lookup = cluster.nsqlookupd(f"--lookupd-http-address={known.http_address}", "--ready-timeout=0s")
    wait_until(lambda: b"waiting for 3 of 3" in lookup.request("GET", "/ready")[1], "it was told of them")
    timeline = [{**moment, **snapshot(lookup, LOOKUP)} for moment in two_lookups(10)]

    fired([timeline], 9, NsqlookupdNotReady=1)


def test_missing_nsqlookupd_fires_alert(fired):
    one = [dict(list(moment.items())[:1]) for moment in two_lookups(10)]

    fired([one], 9, NsqlookupdMissing=1)
    fired([], 9, NsqlookupdMissing=1)


def test_daemons_that_nsqadmin_does_not_reach_are_told(cluster, fired):
    admin = cluster.nsqadmin(f"--nsqd-http-address=127.0.0.1:{free_port()}")
    timeline = []
    for _ in range(25):
        seen = len(timeline)
        wait_until(lambda seen=seen: unreachable(admin) > seen, "it asked once more")
        timeline.append(snapshot(admin, ADMIN))

    fired([timeline, two_lookups(25)], 24, NsqadminCannotReach=1)


def unreachable(admin):
    admin.request("GET", "/api/nodes")
    return float(next(v for k, v in snapshot(admin, ADMIN).items() if 'outcome="unreachable"' in k))


def test_archive_that_has_not_succeeded_for_long_fires_alert(fired):
    labels = f'{{namespace="{NAMESPACE}",cronjob="demo-nsq-archive-a"}}'
    once = {f"kube_cronjob_status_last_successful_time{labels}": "0"}
    made = {f"kube_cronjob_created{labels}": "0"}
    well = made | {f"kube_cronjob_status_last_successful_time{labels}": "7200"}

    for moment in (once, made):
        fired([[moment] * 150, two_lookups(150)], 119)
        fired([[moment] * 150, two_lookups(150)], 130, NsqArchiveLate=1)
    fired([[well] * 150, two_lookups(150)], 130)


# --- the rules themselves


def expressions():
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


@pytest.fixture
def told(cluster):
    """Every metric that the three daemons have."""
    lookup, nsqd = cluster.nsqlookupd(), cluster.nsqd()
    channel(nsqd)
    admin = cluster.nsqadmin()
    deadline = time.monotonic() + 10
    names: set[str] = set()
    while "nsqd_lookupd_connected" not in names and time.monotonic() < deadline:
        names = {name.partition("{")[0] for each in (lookup, nsqd, admin) for name in snapshot(each, "pod")}
    return names


def test_alerts_read_metrics_that_exist(told):
    unknown = {name: metrics_in(expr) - told - FOREIGN for name, expr in expressions().items()}

    assert {name: metrics for name, metrics in unknown.items() if metrics} == {}
    assert all(metrics_in(expr) for expr in expressions().values())


def test_alerts_are_explained_and_fired_by_tests():
    docs = CHART.parents[2] / "docs"
    tests = Path(__file__).read_text()

    for page in ("monitoring.md", "runbook.md"):
        described = (docs / page).read_text()
        assert [name for name in expressions() if f"`{name}`" not in described] == []
    assert [name for name in expressions() if not re.search(rf"\b{name}\b", tests)] == []


def test_rules_have_no_placeholder_left(rules):
    assert "@" not in rules
    assert promtool()


def test_alerts_can_be_left_out_renamed_in_severity_and_routed(chart):
    wanted = {
        "enabled": True,
        "disabled": ["NsqNoConsumers"],
        "severities": {"NsqTimeOuts": "page"},
        "alertLabels": {"team": "a"},
    }
    (thing,) = render(chart, {"monitoring": {"rules": wanted}}).of_kind("PrometheusRule")
    found = {rule["alert"]: rule["labels"] for group in thing["spec"]["groups"] for rule in group["rules"]}

    assert "NsqNoConsumers" not in found
    assert found["NsqTimeOuts"] == {"severity": "page", "team": "a"}
    assert found["NsqdUnhealthy"] == {"severity": "critical", "team": "a"}
    # Without an archive the alert about late archives is left out.
    assert "NsqArchiveLate" not in found


def test_alert_rules_outside_kubernetes_are_made_by_documented_command(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "on-a-machine.md").read_text(encoding="utf-8")
    [command] = re.findall(r"```\n(sed .*?)promtool", page, re.DOTALL)
    subprocess.run(["bash", "-c", command.replace("> ", f"> {tmp_path}/")], check=True, cwd=CHART.parents[2])
    rules = tmp_path / "nsq-alerts.yaml"

    subprocess.run([promtool(), "check", "rules", rules], check=True)
    assert not re.search(r"@\w+@", rules.read_text(encoding="utf-8"))
