"""The history of the cluster's statistics: recorded without viewers, and retained over a restart."""

import time

from nsqclient.wire.durations import MILLISECOND
from tests.support.stub_site import stub_site

TOPIC = "topic.0001.events"


async def kept(site, path, *keys):
    """The history, once all the charts of *keys* are known: a rate is known after the second look."""

    async def points():
        found = (await site.get(path)).json()
        known = [chart["key"] for chart in found["charts"]]
        return found if len(found["at"]) >= 2 and known == list(keys) else None

    return await site.until(points, f"the charts are {', '.join(keys)}", 20.0)


async def test_history_is_drawn_by_server_and_sent_to_scripts(tmp_path):
    path = str(tmp_path / "history")
    async with stub_site(history_file=path) as site:
        whole = await kept(site, "/history", "flow", "waiting", "nodes")
        await kept(site, f"/history?topic={TOPIC}", "flow", "waiting", "flight")
        await kept(site, f"/history?node={site.address(0)}", "flow", "waiting", "flight")
        await site.submit(action="pause", topic=TOPIC)

        async def drawn():
            found = await site.get(f"/topics/{TOPIC}")
            return found if found.html.count("<figure") == 3 else None

        page = await site.until(drawn, "all lines are drawn", 20.0)
        overview = await site.get("/")
        marks = (await site.get(f"/history?topic={TOPIC}")).json()["events"]
    async with stub_site(history_file=path) as site:
        again = (await site.get("/history")).json()
        kept_marks = (await site.get("/history")).json()["events"]

    assert 'role="img" aria-label="Messages / s' in page.html
    assert 'class="spark"' in overview.html
    assert [mark["text"] for mark in marks if mark["kind"] == "change"] == [
        f"pause topic {TOPIC} by anonymous"
    ]
    assert again["at"][: len(whole["at"])] == whole["at"]
    assert marks[0] in kept_marks


async def test_node_that_starts_again_is_marked():
    async with stub_site(nodes=1) as site:
        await site.round()
        await site.round()
        site.nodes[0].started_at = int(time.time()) + 5

        async def marked():
            marks = (await site.get("/history")).json()["events"]
            return [mark for mark in marks if mark["kind"] == "started"]

        (mark,) = await site.until(marked, "the start is marked")

    assert mark["text"] == f"nsqd {site.address(0)} was started, version 1.3.0"


async def test_history_off_means_no_charts_and_rare_polls():
    async with stub_site(history=False, collect_interval=2000 * MILLISECOND) as site:
        page = await site.get("/")
        course = (await site.get("/history")).json()
        site.daemon.collector._last_read -= 3600
        rare = site.daemon.collector.interval_s

    assert "<figure" not in page.html
    assert course["charts"] == []
    assert rare == 10


async def test_history_that_cannot_be_opened_ends_start_with_sentence(cluster, tmp_path):
    path = tmp_path / "none" / "history"
    flags = ["--nsqd-http-address=127.0.0.1:4151", f"--history-file={path}"]
    admin = cluster.daemon("nsqadmin", flags, listeners=("http",)).spawn()

    assert admin.wait() == 1
    assert "failed to open --history-file - open" in admin.logs()
    assert "no such file or directory" in admin.logs()
