"""Whether the disk takes what it is given, and gives it back."""


class Health:
    """A failed write makes the node unhealthy until the same thing can be written again."""

    __slots__ = ("_errors", "refused")

    def __init__(self) -> None:
        self._errors: dict[str, str] = {}
        # Bytes that topics wanted to store and could not, by topic name.
        self.refused: dict[str, int] = {}

    def failed(self, what: str, reason: str) -> bool:
        """Note that *what* could not be written; True when that is news."""
        news = self._errors.get(what) != reason
        self._errors[what] = reason
        return news

    def worked(self, what: str) -> None:
        if self._errors:
            self._errors.pop(what, None)

    def publish_failed(self, topic_name: str, reason: str, size: int) -> bool:
        """Note that messages of *size* bytes could not be stored; True when that is news."""
        self.refused[topic_name] = size
        return self.failed(_publish(topic_name), reason)

    def publish_worked(self, topic_name: str) -> None:
        if self._errors:
            self._errors.pop(_publish(topic_name), None)
            self.refused.pop(topic_name, None)

    def forget(self, topic_name: str) -> None:
        """The topic is gone, and what could not be written with it."""
        self.publish_worked(topic_name)
        self.worked(checkpoint_of(topic_name))
        self.worked(reading_of(topic_name))
        self.worked(syncing_of(topic_name))

    @property
    def ok(self) -> bool:
        return not self._errors

    def __str__(self) -> str:
        """``OK``, or ``NOK - `` and the first reason, as /ping and /stats say it."""
        return f"NOK - {next(iter(self._errors.values()))}" if self._errors else "OK"


def checkpoint_of(topic_name: str) -> str:
    """What the checkpoint of a topic is called here."""
    return f"checkpoint {topic_name}"


def reading_of(topic_name: str) -> str:
    """What reading the messages of a topic is called here."""
    return f"reading {topic_name}"


def syncing_of(topic_name: str) -> str:
    """What an fsync of a topic's log is called here."""
    return f"fsync {topic_name}"


def _publish(topic_name: str) -> str:
    return f"topic {topic_name}"
