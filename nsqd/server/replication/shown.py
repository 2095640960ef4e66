"""What /carried, /stats and the metrics show of copies: those of this node, and those of others here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsqd.engine import all_logs
from nsqd.replication.carrier import Carrier
from nsqd.replication.home_link import HomeLink
from nsqd.replication.keeper import KeeperLink
from nsqd.replication.willing import Keeping
from nsqd.server.replication.linking import Linking


@dataclass(frozen=True, slots=True)
class GivenOut:
    """The state of one copy that a node has."""

    identity: bytes
    appointment: int
    phase: str
    topics: int = 0
    # Messages that are owed here: for each topic, those of the channel that owes most.
    owed: int = 0
    # Topics that cannot be read, and why.
    problems: dict[str, str] = field(default_factory=dict)


def given_out_of(carrier: Carrier) -> list[GivenOut]:
    """The state of each copy."""
    return [
        GivenOut(
            one.identity,
            one.serving.appointment,
            one.phase.value,
            len(one.topics),
            sum(all_logs.owed_at_most(topic) for topic in one.topics.values()),
            dict(one.troubles),
        )
        for one in carrier
    ]


def one_keeper(linking: Linking, linked_s: float, now: int) -> dict[str, Any]:
    """A keeper of this node; *linked_s* is since when it is linked, in seconds since 1970, or 0."""
    link: HomeLink | None = linking.connection.link if linking.connection is not None else None
    streams = [] if link is None else link.streams()
    return {
        "address": linking.appointed.address,
        "identity": linking.appointed.identity,
        "appointment": linking.appointed.number,
        "connected": link is not None and link.is_streamed_to,
        "linked_since": round(linked_s, 3),
        "stalled": link is not None and link.out.stalled,
        "problem": linking.problem,
        "behind_bytes": 0 if link is None else link.out.behind,
        "behind_seconds": 0.0 if link is None else link.out.behind_ns(now) / 1e9,
        "topics": len(streams),
        "linked_topics": sum(one.linked for one in streams),
        "filled_topics": 0 if link is None else sum(map(link.has_whole, streams)),
        "filled_bytes": 0 if link is None else link.streaming.bytes_filled,
    }


def kept_for_others(
    keeping: Keeping[KeeperLink], given_out: Sequence[GivenOut], since: Mapping[bytes, float]
) -> list[dict[str, Any]]:
    """The copies that lie here; callable in any thread. Raises OSError.

    *since* says since when each connected home is here.
    """
    done = {(one.identity, one.appointment): one for one in given_out}
    found = []
    for identity in keeping.copies.identities():
        link = keeping.links.get(identity)
        hello = None if link is None else link.hello
        for appointment in keeping.copies.appointments(identity):
            current = link is not None and link.appointment == appointment
            copied = link.copied if link is not None and current else None
            here = done.get((identity, appointment), GivenOut(identity, appointment, "kept"))
            found.append(
                {
                    "identity": identity.hex(),
                    "appointment": appointment,
                    "connected": current,
                    "linked_since": round(since.get(identity, 0.0), 3) if current else 0,
                    "address": hello.address if current and hello is not None else "",
                    "topics": keeping.copies.topics(identity, appointment),
                    "linked_topics": 0 if copied is None else len(copied.linked),
                    "filled_topics": 0 if copied is None else len(copied.filled),
                    "phase": here.phase,
                    "given_out_topics": here.topics,
                    "owed": here.owed,
                    "problems": here.problems,
                }
            )
    return found
