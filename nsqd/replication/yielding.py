"""Which messages the owners of one log on this node deliver: rules 6, 7 and 10. No socket, no clock."""

from typing import Final

from nsqd.engine import withholding
from nsqd.engine.replica_topic import ReplicaTopic
from nsqd.log.ranges import merged
from nsqd.replication.claims import Claim, Pending, count, subtract
from nsqd.replication.dropping import LogOfCopies
from nsqd.replication.local_copy import LocalCopy

# An owner that starts, takes over or was suspended asks the holders for so long.
ASK_NS: Final = 2_000_000_000


class Yielding:
    """See the module."""

    def __init__(self, log: LogOfCopies) -> None:
        self._log = log
        # Holders that were not reached for the failover timeout.
        self._unreached: set[bytes] = set()

    def apply(self, now_ns: int) -> None:
        """Let each owner here yield what a higher owner delivers."""
        higher: list[tuple[Claim, Pending]] = [(one.claim, one.pending) for one in self._log.owners(now_ns)]
        for copy in sorted(self._log.copies, key=lambda one: one.claim, reverse=True):
            if not copy.is_owner or not copy.tells_state:
                continue
            claim = copy.claim
            others = [pending for other, pending in higher if other > claim]
            if not others and self._is_stale(copy, now_ns):
                # Nobody higher was heard for the failover timeout: first the epoch is raised, durably.
                continue
            self._set_yielded(copy, others)
            higher.append((claim, self._log.delivered(copy)))

    def _is_stale(self, copy: LocalCopy, now_ns: int) -> bool:
        return bool(copy.yielded) and copy.seen > copy.epoch and not copy.asks(now_ns)

    def _set_yielded(self, copy: LocalCopy, others: list[Pending]) -> None:
        yielded: Pending = {}
        for pending in others:
            for name, channels in pending.items():
                if name in copy.topics:
                    mine = yielded.setdefault(name, {})
                    for key, ranges in channels.items():
                        mine[key] = merged([*mine.get(key, ()), *ranges])
        changed = {
            name
            for name in yielded.keys() | copy.yielded.keys()
            if yielded.get(name) != copy.yielded.get(name)
        }
        if not changed:
            return
        copy.yielded = yielded
        for name in changed:
            self.withhold(copy, name)
            for exchange in self._log.exchanges.values():
                exchange.topic_changed(copy, name)
        all_pending = self._log.pending(copy)
        copy.yielded_count = count(all_pending) - count(subtract(all_pending, [yielded]))

    def withhold(self, copy: LocalCopy, name: str) -> None:
        """Withhold on the channels of a topic what is yielded, and old messages while holders are asked."""
        topic = copy.topics.get(name)
        if topic is None or not copy.is_owner:
            return
        hold = copy.held_back(name)
        if isinstance(topic, ReplicaTopic):
            topic.withheld = hold
        yielded = copy.yielded.get(name, {})
        for channel in topic.channels.values():
            ranges = merged([*hold, *yielded.get((channel.name, channel.generation), ())])
            if ranges != channel.withheld:
                withholding.withhold_only(channel, ranges)
                channel.expiry_ns = 0
                self._log.node.broker.serve(channel)
                self._log.node.wants_turn = True

    # --- rule 10: asking ---

    def ask(self, copy: LocalCopy, now_ns: int, *, failover: bool = False) -> None:
        """Ask the holders for their status before old messages are delivered.

        After a failover a holder that was not reached for the failover timeout is not waited for.
        """
        peers = self._log.holders_of(copy).keys() - self._log.without_copy
        if failover:
            self._unreached |= peers - self._log.exchanges.keys()
        peers -= self._unreached
        copy.asks_until_ns = now_ns + ASK_NS if peers else now_ns
        copy.old_ends = {name: topic.log.next_seq for name, topic in copy.topics.items()} if peers else {}
        for exchange in self._log.exchanges.values():
            exchange.ask()
        for name in copy.old_ends:
            self.withhold(copy, name)

    def end_asking(self, now_ns: int) -> None:
        for copy in self._log.copies:
            if not copy.old_ends:
                continue
            missing = self._log.holders_of(copy).keys() - self._log.without_copy - {self._log.node.identity}
            missing -= self._unreached
            missing -= {peer for peer, one in self._log.exchanges.items() if one.answered}
            if copy.asks_until_ns > now_ns and missing:
                continue
            names, copy.old_ends, copy.asks_until_ns = list(copy.old_ends), {}, 0
            self._unreached.clear()
            # What was learned meanwhile is taken into account first.
            self.apply(now_ns)
            for name in names:
                self.withhold(copy, name)
