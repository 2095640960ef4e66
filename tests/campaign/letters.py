"""Sends dead letters back in the random work: they go to the channel that had them, and to no other."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.campaign.ledger import Deed
from tests.campaign.model import Channel, Debt, Fact, Topic
from tests.campaign.places import DEAD, DIES

if TYPE_CHECKING:
    from tests.campaign.workload import Workload


class Letters:
    """Sends dead letters back, and checks the results."""

    def __init__(self, work: "Workload") -> None:
        self._work = work
        # Sequence of a letter -> number of pending requests for it; letters that several requests asked for.
        self._under_way: Counter[int] = Counter()
        self._shared: set[int] = set()

    def send_back(self) -> None:
        """Send back one letter, those that a filter finds, or all; or only count them."""
        work = self._work
        topic = work.model.topic(DIES[0])
        channel = topic.channel(DIES[1]) if topic else None
        letters = work.node.waiting_letters(DEAD)
        here = work.node.broker.topics.get(DIES[0])
        if (
            topic is None
            or channel is None
            or here is None
            or not here.flowing
            or work.requests.is_leaving(topic)
        ):
            return
        known = {
            seq: body
            for seq, body in letters.items()
            if body in work.model.messages and work.model.messages[body].topic is topic
        }
        if not known or DIES[1] not in here.channels:
            return
        how = work.rng.choice(
            ("id", "contains", "dry_run", "all") if known == letters else ("id", "contains")
        )
        arguments = {"topic": DEAD}
        if how in {"id", "contains"}:
            seq = work.rng.choice(sorted(known))
            body = known[seq]
            # The body contains the message's number, which no other has.
            arguments[how] = work.node.id_of(seq) if how == "id" else body[:15].decode()
            known = {one: text for one, text in known.items() if one == seq or (how != "id" and text == body)}
        elif how == "dry_run":
            arguments[how] = "true"
        work.note(f"send back {how} {[body[:14].decode() for body in known.values()]}")
        self._ask(topic, channel, known, arguments, dry=how == "dry_run")

    def _ask(
        self,
        topic: Topic,
        channel: Channel,
        letters: dict[int, bytes],
        arguments: dict[str, str],
        *,
        dry: bool,
    ) -> None:
        work = self._work
        end = work.node.broker.topics[topic.name].sequence_end
        fact = work.model.fact(work.position)
        debts: list[Debt] = []
        low = work.node.broker.disk_low
        # A channel that was set back also has the message in its backlog that the letter was made of.
        pending = work.node.backlog_of(topic.name, channel.name)
        if not dry:
            for body in letters.values():
                debts.append(work.model.send_back(channel, body, fact))
                if work.faulty or work.was_faulty or body in pending:
                    # A letter whose sync failed was written twice.
                    channel.doubled.add(body)
                work.rules.lives_again(debts[-1])

        self._shared.update(self._under_way.keys() & letters)
        self._under_way.update(letters.keys())

        def answered(ok: bool) -> None:
            self._under_way -= Counter(letters.keys())
            if ok:
                fact.answered = fact.synced = work.position
                return
            # Sending back is refused for the same reasons as a publish.
            refused = low or work.node.broker.disk_low
            if not (refused or work.faulty) and topic.exists and channel.exists:
                work.break_off("sending back failed")
            for debt in debts:
                debt.dropped = debt.dropped or Fact(fact.asked)

        def told(answer: dict[str, Any]) -> None:
            left = work.node.waiting_letters(DEAD)
            gone = [seq for seq in letters if seq not in left]
            # If several requests ask for a letter at the same time, one of them sends it back.
            shared = len(self._shared.intersection(letters))
            sent_well = len(gone) - shared <= answer["sent"] <= len(gone)
            # A full topic keeps them where they are.
            found = answer["found"] + sum(answer["left"].values())
            if not sent_well or (dry and len(letters) - found not in range(shared + 1)):
                work.break_off(f"{len(gone)} of {len(letters)} letters are gone, and told was {answer}")
            if len(gone) < len(letters):
                # It is open whether they are in the channel.
                for debt in debts:
                    debt.dropped = debt.dropped or Fact(fact.asked)
                return
            for seq, debt in zip(letters, debts, strict=False):
                if seq in self._shared:
                    # It is open whether this request has sent it.
                    debt.dropped = debt.dropped or Fact(fact.asked)
            work.done[Deed.SENT_BACK] += len(gone)
            if topic.exists:
                self._see(topic, channel, set(letters.values()), end)

        work.ask("dead_letters/send_back", arguments, answered, told)

    def _see(self, topic: Topic, channel: Channel, bodies: set[bytes], end: int) -> None:
        """Note the returned dead letters; they are in the log from *end* on."""
        for seq, body in self._work.node.bodies_from(topic.name, end).items():
            if body in bodies:
                topic.exclusive[seq] = channel.name
