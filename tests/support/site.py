"""An nsqadmin in front of real daemons, and a browser's side of HTTP, for tests without a browser."""

import http.client
import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode

from tests.support import beside
from tests.support.processes import Cluster, Daemon
from tests.support.waiting import wait_until


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """Return the words of the page, without tags."""
        return words_of(self.body)


def words_of(page: bytes) -> str:
    """Return the words of a page, without its tags."""
    reader = _Words()
    reader.feed(page.decode())
    return re.sub(r"\s+", " ", " ".join(reader.words))


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def ask(
    daemon: Daemon, method: str, path: str, body: str = "", headers: Mapping[str, str | bytes] | None = None
) -> Answer:
    """Send one request without following redirects."""
    connection = http.client.HTTPConnection("127.0.0.1", daemon.http_port, timeout=10)
    try:
        connection.request(method, path, body or None, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


def submit(
    daemon: Daemon, prefix: str = "", headers: dict[str, str] | None = None, **fields: str | list[str]
) -> Answer:
    """Send the form of a confirmation."""
    form = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    return ask(
        daemon, "POST", f"{prefix}/action", urlencode({"confirmed": "yes", **fields}, doseq=True), form
    )


def follow(daemon: Daemon, answer: Answer) -> Answer:
    """Request the page to which a submitted form redirects, with the cookie that it set."""
    assert answer.status == 303, answer.text
    cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
    return ask(daemon, "GET", answer.headers["Location"], headers={"Cookie": cookie})


@contextmanager
def frozen(daemon: Daemon) -> Iterator[None]:
    """Freeze the process: its kernel accepts connections, but it does nothing."""
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


@dataclass
class Site:
    """One nsqlookupd, two nsqd, one nsqadmin."""

    lookupd: Daemon
    nsqds: list[Daemon]
    admin: Daemon
    prefix: str = ""

    def fill(self, topic: str, *channels: str, messages: int = 3) -> None:
        """Put *messages* messages into each of the channels of *topic*, on each nsqd."""
        encoded = quote(topic)
        for nsqd in self.nsqds:
            nsqd.post(f"/topic/create?topic={encoded}")
            for channel in channels:
                nsqd.post(f"/channel/create?topic={encoded}&channel={quote(channel)}")
            for number in range(messages):
                nsqd.post(f"/pub?topic={encoded}", f"message {number}".encode())
        wait_until(
            lambda: len(self.lookupd.get(f"/lookup?topic={encoded}")["producers"]) == len(self.nsqds),
            f"{topic} is registered by every nsqd",
        )
        if channels:
            # A new topic holds its messages until it knows which channels nsqlookupd has for it.
            wait_until(
                lambda: all(_topic_depth(nsqd, encoded) == 0 for nsqd in self.nsqds),
                f"the messages of {topic} have gone on to its channels",
            )
        wait_until(lambda: self._shows(encoded), f"nsqadmin shows what {topic} holds")

    def _shows(self, encoded: str) -> bool:
        """Say whether nsqadmin has collected the statistics of a topic from the nsqds."""
        if not beside.OURS:  # the original asks again for each answer
            return self.admin.request("GET", f"{self.prefix}/api/topics/{encoded}")[0] == 200
        held = [nsqd.get(f"/stats?format=json&topic={encoded}")["topics"][0] for nsqd in self.nsqds]
        path = f"{self.prefix}/api/topics/{encoded}"
        status, body = self.admin.request("GET", path)
        if status != 200:
            return False
        shown = {node["node"]: _summary(node) for node in json.loads(body)["nodes"]}
        if shown != {
            nsqd.http_address: _summary(topic) for nsqd, topic in zip(self.nsqds, held, strict=True)
        }:
            return False
        name = held[0]["topic_name"]
        nodes = self.admin.get(f"{self.prefix}/api/nodes")["nodes"]
        if not all(name in [entry["topic"] for entry in node["topics"]] for node in nodes):
            return False
        # The list of topics is summed up a moment later.
        rows = self.admin.get(f"{self.prefix}/topics?q={encoded}&format=json")["topics"]
        messages = sum(count for count, _, _ in shown.values())
        depth = sum(own + sum(depth for _, depth in channels) for _, own, channels in shown.values())
        return (name, messages, depth) in [
            (row["topic_name"], row["message_count"], row["depth"]) for row in rows
        ]


def _topic_depth(nsqd: Daemon, encoded: str) -> int:
    (topic,) = nsqd.get(f"/stats?format=json&topic={encoded}")["topics"]
    return int(topic["depth"])


def _summary(topic: dict[str, Any]) -> tuple[int, int, list[tuple[str, int]]]:
    channels = sorted((channel["channel_name"], channel["depth"]) for channel in topic["channels"])
    return topic["message_count"], topic["depth"], channels


def build_site(cluster: Cluster, *flags: str, prefix: str = "") -> Site:
    lookupd = cluster.nsqlookupd()
    nsqds = [cluster.nsqd(), cluster.nsqd()]
    admin = cluster.nsqadmin(*flags)
    wait_until(lambda: len(lookupd.get("/nodes")["producers"]) == 2, "both nsqds are registered")
    return Site(lookupd, nsqds, admin, prefix)
