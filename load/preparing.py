"""The topics and channels of a run: created on every nsqd before it, deleted after it."""

from urllib.parse import quote

from load.daemons import ListedNsqd
from load.finding import ClusterAsker, Unreachable
from load.profile import TopicPlan


class NoCluster(Exception):
    """There is no cluster for the load; the text says what was found instead."""


def find_cluster(asker: ClusterAsker, lookupds: list[str]) -> list[ListedNsqd]:
    """Return every nsqd that answers. Raises NoCluster with a sentence."""
    try:
        nsqds = asker.all_nsqd(lookupds)
    except Unreachable as error:
        raise NoCluster(f"There is no cluster: {error}.") from error
    if not nsqds:
        raise NoCluster(f"There is no cluster: nsqlookupd at {', '.join(lookupds)} knows no nsqd.")
    answering = []
    for nsqd in nsqds:
        try:
            asker.ask(nsqd.http, "/ping")
        except Unreachable:
            continue
        answering.append(nsqd)
    if not answering:
        raise NoCluster(
            f"nsqlookupd lists {len(nsqds)} nsqd, and none answers; the first at {nsqds[0].http}."
        )
    return answering


def make_topics(asker: ClusterAsker, nsqds: list[ListedNsqd], plan: TopicPlan) -> None:
    """Create every channel before the first message, because a later channel does not get that message."""
    for nsqd in nsqds:
        for topic in plan.topics():
            _post(asker, nsqd, f"/topic/create?topic={quote(topic, safe='')}")
        for topic, channel in plan.pairs():
            where = f"topic={quote(topic, safe='')}&channel={quote(channel, safe='')}"
            _post(asker, nsqd, f"/channel/create?{where}")


def delete_topics(asker: ClusterAsker, nsqds: list[ListedNsqd], lookupds: list[str], plan: TopicPlan) -> None:
    """Delete the run's topics everywhere; a daemon that does not answer keeps them."""
    for address in (*(nsqd.http for nsqd in nsqds), *lookupds):
        for topic in plan.topics():
            try:
                asker.ask(address, f"/topic/delete?topic={quote(topic, safe='')}", b"")
            except Unreachable:
                break


def _post(asker: ClusterAsker, nsqd: ListedNsqd, path: str) -> None:
    try:
        status, body = asker.ask(nsqd.http, path, b"")
    except Unreachable as error:
        raise NoCluster(f"Topics cannot be made: {error}.") from error
    if status != 200:
        answer = body[:150].decode(errors="replace").strip()
        raise NoCluster(f"Topics cannot be made: {nsqd.http} answered {path} with {status} {answer}.")
