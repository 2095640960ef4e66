"""Bytes as they are read, cut into records at a delimiter. Pure."""


class Records:
    """Cuts a stream; what pieces it comes in makes no difference. Empty records are left out."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._rest: list[bytes] = []  # the beginning of a record, in the pieces it came in

    @property
    def unfinished(self) -> int:
        """How many bytes of a record wait for its end."""
        return sum(map(len, self._rest))

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the records that are complete with this piece."""
        first, *others = piece.split(self._delimiter)
        self._rest.append(first)
        if not others:
            return []
        records = [b"".join(self._rest), *others[:-1]]
        self._rest = [others[-1]]
        return [record for record in records if record]

    def end(self) -> list[bytes]:
        """Return the last record, if the stream ended without a delimiter."""
        last = b"".join(self._rest)
        self._rest = []
        return [last] if last else []
