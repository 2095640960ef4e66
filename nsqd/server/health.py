"""Whether the disk can be written to and read from."""


class Health:
    """A failure makes the node unhealthy until the same thing succeeds again."""

    __slots__ = ("_errors", "failed_fsyncs", "refused")

    def __init__(self) -> None:
        self._errors: dict[str, str] = {}
        # The bytes that each topic could not store, by topic name.
        self.refused: dict[str, int] = {}
        # Topics that accept no publishes until a restart, with the reason.
        self.failed_fsyncs: dict[str, str] = {}

    def failed(self, what: str, reason: str) -> bool:
        """Note that the operation *what* failed; True if the failure or its reason is new."""
        news = self._errors.get(what) != reason
        self._errors[what] = reason
        return news

    def worked(self, what: str) -> None:
        if self._errors:
            self._errors.pop(what, None)

    def publish_failed(self, topic_name: str, reason: str, size: int) -> bool:
        """Note that messages of *size* bytes could not be stored; True if that or its reason is new."""
        self.refused[topic_name] = size
        return self.failed(_publish(topic_name), reason)

    def publish_worked(self, topic_name: str) -> None:
        if self._errors:
            self._errors.pop(_publish(topic_name), None)
            self.refused.pop(topic_name, None)

    def fsync_failed(self, topic_name: str, reason: str) -> None:
        """Note that a topic accepts no publishes until a restart."""
        self.failed_fsyncs[topic_name] = reason
        self.failed(syncing_of(topic_name), self.restart_reason)

    @property
    def restart_reason(self) -> str:
        """Why this nsqd must be restarted; empty when it need not be."""
        for name, reason in self.failed_fsyncs.items():
            return f"topic {name}: {reason}"
        return ""

    def forget(self, topic_name: str) -> None:
        """Forget the failures of a topic that was deleted."""
        self.publish_worked(topic_name)
        self.worked(checkpoint_of(topic_name))
        self.worked(reading_of(topic_name))
        self.worked(syncing_of(topic_name))
        self.failed_fsyncs.pop(topic_name, None)

    @property
    def ok(self) -> bool:
        return not self._errors

    @property
    def reason(self) -> str:
        """The first reason why the node is unhealthy; empty while it is healthy."""
        return next(iter(self._errors.values()), "")

    def __str__(self) -> str:
        """``OK``, or ``NOK - `` and the first reason, as /ping and /stats show it."""
        return f"NOK - {self.reason}" if self._errors else "OK"


def checkpoint_of(topic_name: str, origin: str = "") -> str:
    """The name under which failures of a topic's checkpoint are noted; *origin* is for a promoted copy."""
    return f"checkpoint {topic_name} {origin}" if origin else f"checkpoint {topic_name}"


def reading_of(topic_name: str) -> str:
    """The name under which failures to read a topic's messages are noted."""
    return f"reading {topic_name}"


def syncing_of(topic_name: str) -> str:
    """The name under which failed fsyncs of a topic's log are noted."""
    return f"fsync {topic_name}"


def _publish(topic_name: str) -> str:
    return f"topic {topic_name}"
