"""The state of the daemons: their addresses, their cost and their backlog. Pure."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ListedNsqd:
    """One nsqd as nsqlookupd lists it."""

    tcp: str
    http: str


@dataclass(frozen=True, slots=True)
class Cost:
    """The processor time and memory that a daemon has used so far."""

    cpu_s: float
    memory_mb: float


@dataclass
class DaemonUsage:
    """The samples of one daemon over the run."""

    name: str
    samples: list[tuple[float, Cost]] = field(default_factory=list)

    @property
    def memory_mb(self) -> float:
        return max((cost.memory_mb for _, cost in self.samples), default=0.0)

    @property
    def cpu_s(self) -> float:
        """Return the processor time between the first and last sample; a killed daemon starts again at 0."""
        spent = 0.0
        for (_, before), (_, after) in zip(self.samples, self.samples[1:], strict=False):
            spent += after.cpu_s - before.cpu_s if after.cpu_s >= before.cpu_s else after.cpu_s
        return spent

    @property
    def cores(self) -> float:
        """Return how many processors the daemon kept busy on average."""
        took = self.samples[-1][0] - self.samples[0][0] if len(self.samples) > 1 else 0.0
        return self.cpu_s / took if took > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """The pending messages of all channels, over all nsqd that answer."""

    messages: int
    oldest_s: float
    by_channel: dict[str, int]
    """``topic channel`` -> messages; a topic alone where no channel has them yet."""
    unreachable: dict[str, str]
    """nsqd that did not answer, and why."""
    problems: list[str]
    """Sentences about what an nsqd says of itself."""
