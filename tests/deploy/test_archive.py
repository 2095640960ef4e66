"""The CronJobs that write topics to Parquet."""

import re

import pytest

from pyspark_nsq.jobs.archive_options import parse
from pyspark_nsq.source.options import SourceOptions, StartingOffsets
from tests.deploy.release import NAME, render, values_of


@pytest.fixture(scope="module")
def archived(chart):
    return render(chart, values_of("archive"))


def job(release, name):
    return release.named("CronJob", f"{NAME}-nsq-archive-{name}")


def pod(release, name):
    return job(release, name)["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def container(release, name):
    (only,) = pod(release, name)["containers"]
    return only


def test_archive_without_topics_has_no_job(chart):
    assert render(chart, {}).of_kind("CronJob") == []


def test_job_of_topic_never_runs_concurrently(archived):
    orders, clicks = job(archived, "orders"), job(archived, "clicks")

    assert [thing["spec"]["schedule"] for thing in (orders, clicks)] == ["5 * * * *", "*/15 * * * *"]
    assert {thing["spec"]["concurrencyPolicy"] for thing in (orders, clicks)} == {"Forbid"}
    assert job(archived, "orders")["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 3600


@pytest.mark.parametrize(("name", "topic"), [("orders", "Orders.v1"), ("clicks", "clicks")])
def test_job_understands_its_command_line(archived, name, topic):
    assert container(archived, name)["command"] == ["nsq-archive"]
    assert container(archived, name)["image"].startswith("registry.example.com/nsq-cluster-archive:")

    options = parse(container(archived, name)["args"])
    source = SourceOptions.parse(options.source).for_stream()

    assert (source.topic, source.channel, source.min_partitions) == (topic, "parquet", 4)
    assert options.output == f"/archive/{name}"
    assert options.checkpoint == f"/archive/{name}.checkpoint"
    assert options.trigger == {"availableNow": True}
    assert source.starting_offsets is (StartingOffsets.EARLIEST if name == "orders" else None)


def test_job_asks_every_nsqlookupd_and_shows_trust_and_secret(archived):
    source = SourceOptions.parse(parse(container(archived, "clicks")["args"]).source)
    mounts = {mount["name"]: mount["mountPath"] for mount in container(archived, "clicks")["volumeMounts"]}

    pods = archived.pod_names("nsqlookupd")
    assert source.lookupd_http_addresses == tuple(f"{name}:4161" for name in pods)
    assert source.tls["tls_root_ca_file"].startswith(mounts["ca"])
    assert source.auth_secret_file.startswith(mounts["auth"])


def test_files_go_to_claim_and_everything_else_to_tmp(archived):
    volumes = {volume["name"]: volume for volume in pod(archived, "orders")["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container(archived, "orders")["volumeMounts"]}

    assert volumes[mounts["/archive"]]["persistentVolumeClaim"] == {"claimName": "lake"}
    assert volumes[mounts["/tmp"]]["emptyDir"] == {}
    assert {"name": "HOME", "value": "/tmp"} in container(archived, "orders")["env"]


def test_long_release_name_leaves_room_for_name_of_topic(chart):
    values = values_of("archive") | {"fullnameOverride": "a" * 40}
    names = [thing["metadata"]["name"] for thing in render(chart, values).of_kind("CronJob")]

    assert names == [f"{'a' * 37}-archive-orders", f"{'a' * 37}-archive-clicks"]
    assert max(map(len, names)) == 52


@pytest.mark.parametrize("name", ["a" * 40, "demo"])
def test_alert_about_late_archives_means_these_jobs_and_no_others(chart, name):
    values = values_of("archive") | {"fullnameOverride": name, "monitoring": {"rules": {"enabled": True}}}
    release = render(chart, values)
    names = [thing["metadata"]["name"] for thing in release.of_kind("CronJob")]

    (group,) = (
        each
        for each in release.of_kind("PrometheusRule")[0]["spec"]["groups"]
        if each["name"] == "nsq-archive"
    )
    (rule,) = group["rules"]
    selected = set(re.findall('cronjob=~"([^"]+)"', rule["expr"]))
    assert len(selected) == 1
    pattern = re.compile(selected.pop())
    assert all(pattern.fullmatch(each) for each in names)
    assert not pattern.fullmatch(f"{name}-archive-other")


def test_job_may_use_http_api_of_brokers_where_policies_restrict_it(archived, chart):
    def peers(release, component):
        policy = release.named("NetworkPolicy", f"{NAME}-nsq-{component}")
        return [
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in policy["spec"]["ingress"]
            if {"port": "http"} in rule["ports"]
            for peer in rule["from"]
            if "podSelector" in peer and "app.kubernetes.io/component" in peer["podSelector"]["matchLabels"]
        ]

    assert "archive" in peers(archived, "nsqd")
    assert "archive" in peers(archived, "nsqlookupd")

    without = values_of("archive") | {"archive": {}}
    assert "archive" not in peers(render(chart, without), "nsqd")
