"""The plan for the user processes, as the locustfile that the master sends them. Pure."""

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from load.marks import RUN_BYTES
from load.profile import Profile, read_profile

_LOCUSTFILE: Final = '''\
"""Written by nsq-load for one run."""
from load.users import make_users

globals().update(make_users({text!r}))
'''


@dataclass(frozen=True, slots=True)
class Plan:
    run: str
    """Drawn for each run: it distinguishes its messages from others."""
    profile: Profile
    lookupds: list[str]
    admins: list[str]
    tls: dict[str, str]
    """Options of TLS, empty without; paths must be there on every worker's host."""
    auth_secret_file: str
    auth_allow_cleartext: bool
    folder: str
    """Where the master writes; nothing to the workers."""

    def locustfile(self) -> str:
        return _LOCUSTFILE.format(text=json.dumps(self._plain()))

    def _plain(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "name": self.profile.name,
            "profile": self.profile.to_json(),
            "lookupds": self.lookupds,
            "admins": self.admins,
            "tls": self.tls,
            "auth_secret_file": self.auth_secret_file,
            "auth_allow_cleartext": self.auth_allow_cleartext,
            "folder": self.folder,
        }

    @classmethod
    def read(cls, text: str) -> Self:
        plain = json.loads(text)
        profile = read_profile(plain.pop("name"), plain.pop("profile"))
        return cls(profile=profile, **plain)

    @property
    def run_bytes(self) -> bytes:
        return bytes.fromhex(self.run).ljust(RUN_BYTES, b"\0")[:RUN_BYTES]
