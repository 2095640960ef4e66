"""The copies of one home as their keeper knows them, and the jobs on their files, for any thread."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from nsqd.engine import carried
from nsqd.engine.carried_topic import CarriedTopic
from nsqd.log.disk import Disk
from nsqd.log.ranges import Ranges
from nsqd.replication.serving import CopyPhase, Serving


class OpensCopies(Protocol):
    """Makes a topic of a copy's files, and puts it away again; both in any thread."""

    def open(self, name: str, home: bytes, folder: Path, now_ns: int) -> CarriedTopic:
        """Raises OSError and NewerVersion."""

    def close(self, topic: CarriedTopic) -> None:
        """Note what is finished, durably, and close the files. Raises OSError."""

    def drop(self, topic: CarriedTopic) -> None:
        """Close the files of a topic of which nothing is to be noted any more. Raises OSError."""

    def held(self, topic: CarriedTopic) -> Ranges:
        """The sequences of the topic that are stored."""


@dataclass(slots=True)
class CarriedCopy:
    """All topics of one home that were copied under one appointment."""

    identity: bytes
    serving: Serving
    topics: dict[str, CarriedTopic] = field(default_factory=dict)
    # A thread is using its files.
    busy: bool = False
    # Since when it is given out.
    carried_ns: int = 0
    told_ns: int = 0
    # The serial of the home's answer that was last looked at.
    looked_at: int = 0
    # Nobody needs it any more: it is removed when it is put away.
    needless: bool = False
    # It is about to be another node's: nothing more is given out here.
    leaves: bool = False
    # Why topics of it cannot be given out, by name, and when they are tried again. Under the empty name: why
    # no topics can be looked for.
    troubles: dict[str, str] = field(default_factory=dict)
    again_ns: int = 0

    @property
    def phase(self) -> CopyPhase:
        return self.serving.phase

    def in_flight(self) -> dict[str, dict[str, Ranges]]:
        """What is in flight, by topic and channel; those without any are left out."""
        found = {name: carried.in_flight(topic) for name, topic in self.topics.items()}
        return {name: flying for name, flying in found.items() if flying}


@dataclass(slots=True)
class OpenCopy:
    """Recover topics of a copy, as a start would; one that cannot be read does not hold the others back."""

    copy: CarriedCopy
    folders: dict[str, Path]
    opens: OpensCopies
    now_ns: int
    found: dict[str, CarriedTopic] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def run(self, _disk: Disk) -> None:
        """Raises nothing."""
        for name, folder in self.folders.items():
            try:
                self.found[name] = self.opens.open(name, self.copy.identity, folder, self.now_ns)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one, the others are given out
                self.failed[name] = str(error) or type(error).__name__


@dataclass(slots=True)
class CloseCopy:
    """Put the topics of a copy away."""

    copy: CarriedCopy
    topics: list[CarriedTopic]
    opens: OpensCopies

    def run(self, _disk: Disk) -> None:
        """Raises OSError for the first topic that fails, after the others were closed."""
        first: OSError | None = None
        for topic in self.topics:
            try:
                self.opens.close(topic)
            except OSError as error:
                first = first or error
        if first is not None:
            raise first


CarrierJob: TypeAlias = OpenCopy | CloseCopy
