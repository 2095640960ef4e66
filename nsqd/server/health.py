"""Whether the disk takes what it is given."""


class Health:
    """A failed write makes the node unhealthy until the same thing can be written again."""

    __slots__ = ("_errors",)

    def __init__(self) -> None:
        self._errors: dict[str, str] = {}

    def failed(self, what: str, reason: str) -> bool:
        """Note that *what* could not be written; True when that is news."""
        news = self._errors.get(what) != reason
        self._errors[what] = reason
        return news

    def worked(self, what: str) -> None:
        if self._errors:
            self._errors.pop(what, None)

    @property
    def ok(self) -> bool:
        return not self._errors

    def __str__(self) -> str:
        """``OK``, or ``NOK - `` and the first reason, as /ping and /stats say it."""
        return f"NOK - {next(iter(self._errors.values()))}" if self._errors else "OK"
