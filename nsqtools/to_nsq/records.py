"""Cuts the bytes that are read into records at a delimiter. Pure."""


class Records:
    """Cuts a stream that arrives in chunks of any size. Empty records are left out."""

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._pieces: list[bytes] = []  # the chunks of an incomplete record

    @property
    def unfinished(self) -> int:
        """The number of bytes of an incomplete record."""
        return sum(map(len, self._pieces))

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the records that this chunk completes."""
        first, *others = piece.split(self._delimiter)
        self._pieces.append(first)
        if not others:
            return []
        records = [b"".join(self._pieces), *others[:-1]]
        self._pieces = [others[-1]]
        return [record for record in records if record]

    def end(self) -> list[bytes]:
        """Return the last record, if the stream ended without a delimiter.

        A newline at the very end belongs to the text file or to `echo`, not to the record.
        """
        last = b"".join(self._pieces).removesuffix(b"\n")
        self._pieces = []
        return [last] if last else []
