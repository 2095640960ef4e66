"""API tokens: a line ``NAME ROLE SHA256 [TOPICS]`` for each; the token itself is stored nowhere."""

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nsqadmin.access.roles import ANYBODY, Role, RoleGrant
from nsqcore.process.file_stamp import FileStamp, stamp_of

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Token:
    digest: str
    grant: RoleGrant


def parse_tokens(text: str) -> list[Token]:
    """Read the file. Raises ValueError with a sentence that names the wrong line."""
    found: list[Token] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        role = Role.__members__.get(words[1].upper()) if len(words) in {3, 4} else None
        if role is None or not _DIGEST.fullmatch(words[2]):
            raise ValueError(f"line {number} is not NAME ROLE SHA256 [TOPICS]")
        topics = words[3] if len(words) == 4 else ANYBODY
        found.append(Token(words[2], RoleGrant(role, "token", words[0], topics)))
    return found


@dataclass(slots=True)
class TokenFile:
    """The file of tokens, read again when it changes, so that a removed token stops working immediately."""

    path: str
    _stamp: FileStamp | None = None
    _tokens: list[Token] = field(default_factory=list)

    @property
    def tokens(self) -> list[Token]:
        """The tokens of the file as it is now. Raises OSError or ValueError if it cannot be read."""
        if not self.path:
            return []
        stamp = stamp_of(Path(self.path))
        if stamp != self._stamp:
            self._tokens = parse_tokens(Path(self.path).read_text(encoding="utf-8"))
            self._stamp = stamp
        return self._tokens

    def named(self, secret: str) -> str:
        """Return the name of the token whose secret is *secret*, or an empty string."""
        digest = hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
        found = ""
        # All are compared, so that the time taken does not tell which one matched.
        for token in self.tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token.grant.name
        return found
