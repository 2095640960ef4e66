"""A profile, read from TOML: the users, their load, its duration and the thresholds. Pure."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, TypeVar

from load.marks import MARK_BYTES
from load.pacing import Stage

T = TypeVar("T")

PUBLISHES: Final = ("PUB", "MPUB", "DPUB", "HTTP", "HTTP-MPUB")
ASKS: Final = ("lookup", "nodes", "topics")


class ProfileError(ValueError):
    """The profile is invalid; the text names the place."""


@dataclass(frozen=True, slots=True)
class Between:
    """A number, or two bounds between which a number is drawn each time: ``200`` or ``[100, 300]``."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The cluster that ``--start`` starts."""

    nsqd: int = 2
    nsqadmin: bool = False
    flags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    count: int = 1
    channels: int = 1
    name: str = "load"

    def topics(self) -> list[str]:
        return [self.name] if self.count == 1 else [f"{self.name}-{at}" for at in range(self.count)]

    def pairs(self) -> list[tuple[str, str]]:
        """Return every topic with every channel."""
        return [(topic, f"channel-{at}") for topic in self.topics() for at in range(self.channels)]


@dataclass(frozen=True, slots=True)
class PublisherPlan:
    """*rate* is messages a second of all publishers together; 0 means as fast as they are answered."""

    kind: str = "PUB"
    users: int = 1
    rate: float = 0.0
    size: Between = Between(200, 200)
    batch: int = 100
    delay_ms: Between = Between(100, 1000)

    @property
    def messages(self) -> int:
        return self.batch if "MPUB" in self.kind else 1


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """Messages not requeued, abandoned or touched are finished; *rate* limits all users together."""

    users: int = 1
    ready: int = 500
    rate: float = 0.0
    requeue: float = 0.0
    requeue_ms: Between = Between(0, 100)
    abandon: float = 0.0
    touch: float = 0.0
    hold_ms: Between = Between(500, 1500)


@dataclass(frozen=True, slots=True)
class PollerPlan:
    ask: str = "lookup"
    users: int = 1
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class BrowserPlan:
    users: int = 1
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits of a run; None is not checked. Missing and unknown messages are always a fault."""

    errors: int | None = 0
    refused: int | None = 0
    unexplained: int | None = 0
    duplicates: int | None = None
    timeouts: int | None = None
    publish_p99_ms: float | None = None
    publish_p999_ms: float | None = None
    delivery_p50_ms: float | None = None
    delivery_p99_ms: float | None = None
    delivery_p999_ms: float | None = None
    lookup_p99_ms: float | None = None
    page_p99_ms: float | None = None
    published_share: float | None = None
    depth_at_end: int | None = 0
    oldest_s: float | None = None
    memory_mb: float | None = None
    cpu_cores: float | None = None
    drained_within_s: float | None = None
    early: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    about: str
    seconds: float
    cluster: ClusterPlan
    topics: TopicPlan
    publishers: list[PublisherPlan]
    consumers: list[ConsumerPlan]
    pollers: list[PollerPlan]
    browsers: list[BrowserPlan]
    stages: list[Stage]
    thresholds: Thresholds

    @property
    def users(self) -> int:
        return sum(self.sections())

    def sections(self) -> list[int]:
        """Return how many users each section has."""
        return [
            *(publisher.users for publisher in self.publishers),
            *(consumer.users for consumer in self.consumers),
            *(poller.users for poller in self.pollers),
            *(browser.users for browser in self.browsers),
        ]

    @property
    def channels(self) -> list[str]:
        """Return every topic and channel that consumers of this profile read, as ``topic channel``."""
        return [f"{topic} {channel}" for topic, channel in self.topics.pairs()] if self.consumers else []

    def to_json(self) -> dict[str, Any]:
        """Return the profile as ``read_profile`` takes it, for the user processes."""
        plain = asdict(self)
        del plain["name"]
        for section in (*plain["publishers"], *plain["consumers"]):
            for key, value in section.items():
                if isinstance(value, dict):
                    section[key] = [value["low"], value["high"]]
        plain["thresholds"] = {key: value for key, value in plain["thresholds"].items() if value is not None}
        return plain


def parse_profile(name: str, text: str) -> Profile:
    try:
        return read_profile(name, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"profile {name} is not TOML: {error}") from error


def read_profile(name: str, given: Mapping[str, Any]) -> Profile:
    """Check and return the content of a file. Raises ProfileError with section and key."""
    known = {each.name for each in fields(Profile)} - {"name"}
    if strange := sorted(given.keys() - known):
        raise ProfileError(f"profile {name}: there is no {strange[0]}; there are {', '.join(sorted(known))}")
    seconds = given.get("seconds", 30)
    if not _is_number(seconds) or seconds <= 0:
        raise ProfileError(f"profile {name}: seconds must be above 0")
    profile = Profile(
        name,
        str(given.get("about", "")).strip(),
        float(seconds),
        _one(name, "cluster", ClusterPlan, given),
        _one(name, "topics", TopicPlan, given),
        _many(name, "publishers", PublisherPlan, given),
        _many(name, "consumers", ConsumerPlan, given),
        _many(name, "pollers", PollerPlan, given),
        _many(name, "browsers", BrowserPlan, given),
        _many(name, "stages", Stage, given),
        _one(name, "thresholds", Thresholds, given),
    )
    _check(profile)
    return profile


def _check(profile: Profile) -> None:
    def refuse(where: str, what: str) -> None:
        raise ProfileError(f"profile {profile.name}, {where}: {what}")

    if min(profile.sections(), default=1) < 1:
        refuse("users", "a section has at least 1 user; leave it out instead")
    if not profile.users:
        refuse("publishers", "a profile needs users: publishers, consumers, pollers or browsers")
    if profile.cluster.nsqd < 1 or profile.topics.count < 1 or profile.topics.channels < 1:
        refuse("cluster and topics", "nsqd, count and channels must be at least 1")
    for publisher in profile.publishers:
        if publisher.kind not in PUBLISHES:
            refuse("publishers", f"kind {publisher.kind!r} is none of {', '.join(PUBLISHES)}")
        if publisher.size.low < MARK_BYTES:
            refuse("publishers", f"size must be at least {MARK_BYTES}: each message carries its number")
        if publisher.rate < 0 or publisher.batch < 1:
            refuse("publishers", "rate must not be negative, batch must be at least 1")
    for consumer in profile.consumers:
        if not 1 <= consumer.ready <= 2500:
            refuse("consumers", "ready must be 1 to 2500")
        shares = (consumer.requeue, consumer.abandon, consumer.touch)
        if min(shares) < 0 or sum(shares) > 1:
            refuse("consumers", "requeue, abandon and touch are shares and may add up to 1")
    for poller in profile.pollers:
        if poller.ask not in ASKS:
            refuse("pollers", f"ask {poller.ask!r} is none of {', '.join(ASKS)}")
    rates = [*(poller.rate for poller in profile.pollers), *(browser.rate for browser in profile.browsers)]
    if min(rates, default=1) <= 0:
        refuse("pollers and browsers", "rate must be above 0")
    for stage in profile.stages:
        if stage.seconds <= 0 or stage.times < 0:
            refuse("stages", "seconds must be above 0, times not negative")


def _many(name: str, section: str, kind: type[T], given: Mapping[str, Any]) -> list[T]:
    found = given.get(section, [])
    if not isinstance(found, list):
        raise ProfileError(f"profile {name}: write [[{section}]], there may be several")
    return [_section(name, section, kind, one) for one in found]


def _one(name: str, section: str, kind: type[T], given: Mapping[str, Any]) -> T:
    return _section(name, section, kind, given.get(section, {}))


def _section(name: str, section: str, kind: type[T], given: Any) -> T:
    if not isinstance(given, Mapping):
        raise ProfileError(f"profile {name}, {section}: it is a table of keys and values")
    wanted = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in given.items():
        if key not in wanted:
            raise ProfileError(
                f"profile {name}, {section}: there is no {key}; there are {', '.join(sorted(wanted))}"
            )
        try:
            values[key] = _value(wanted[key].type, value)
        except ValueError as error:
            raise ProfileError(f"profile {name}, {section}: {key} = {value!r} {error}") from error
    try:
        return kind(**values)
    except TypeError as error:
        raise ProfileError(f"profile {name}, {section}: {error}") from error


def _value(kind: Any, value: Any) -> Any:
    if kind is Between:
        ends = value if isinstance(value, list) else [value, value]
        if len(ends) != 2 or not all(_is_number(end) for end in ends) or not 0 <= ends[0] <= ends[1]:
            raise ValueError("is no number and no [least, most]")
        return Between(int(ends[0]), int(ends[1]))
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError("is neither true nor false")
        return value
    if kind is str:
        return str(value)
    if kind == list[str]:
        if not isinstance(value, list):
            raise ValueError("is no list")
        return [str(one) for one in value]
    if not _is_number(value):
        raise ValueError("is no number")
    return int(value) if kind is int else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
