"""TLS and the secret of AUTH from options, for users and for the process that judges."""

from collections.abc import Mapping
from pathlib import Path

from load.connection import Access
from nsqclient._config import tls_context


def read_access(tls: Mapping[str, str], auth_secret_file: str, *, allow_cleartext: bool) -> Access:
    """Raises ValueError or OSError with what is wrong with a file."""
    secret = Path(auth_secret_file).read_text(encoding="utf-8").strip() if auth_secret_file else None
    return Access(tls_context(tls) if tls else None, secret, allow_cleartext)
