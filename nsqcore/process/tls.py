"""Certificates in files: read at the start, and read again whenever they change."""

import asyncio
import ssl
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from nsqcore.process.logs import Log

# A renewed certificate is there weeks before the old one ends; nobody waits for it.
CHECK_S: Final = 2.0

Stamp = tuple[tuple[int, int, int] | None, ...]


class Certificates:
    """A TLS context whose files can be loaded again; connections made from then on use what is new.

    An authority that is no longer in its file is believed until the restart.
    """

    def __init__(
        self, make: Callable[[], ssl.SSLContext], load: Callable[[ssl.SSLContext], None], files: Iterable[str]
    ) -> None:
        """*load* puts *files* into a context of *make*; it raises OSError or ValueError with a reason."""
        self._make = make
        self._load = load
        self.files = tuple(file for file in files if file)
        self._stamp = self._look()
        self.context = make()
        load(self.context)

    def refresh(self) -> bool:
        """Load the files again if they changed; tells whether they had. Raises OSError or ValueError."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        # What is wrong shows here, before the context that serves is touched.
        self._load(self._make())
        self._load(self.context)
        self._stamp = stamp
        return True

    def _look(self) -> Stamp:
        return tuple(_stamp(Path(file)) for file in self.files)


async def watch(watched: Iterable[Certificates], log: Log) -> None:
    """Keep *watched* up to date forever; a file that cannot be used is complained of once."""
    said: dict[Certificates, str] = {}
    followed = list(watched)
    while True:
        await asyncio.sleep(CHECK_S)
        for certificates in followed:
            try:
                if certificates.refresh():
                    said.pop(certificates, None)
                    log.info("TLS: read again: %s", ", ".join(certificates.files))
            except (OSError, ValueError) as error:
                problem = reason(error)
                if said.get(certificates) != problem:
                    said[certificates] = problem
                    files = ", ".join(certificates.files)
                    log.warning("TLS: cannot read again: %s - %s; the old ones serve on", files, problem)


def server_certificates(
    certificate: str,
    key: str,
    min_version: ssl.TLSVersion,
    *,
    verify_clients: bool = False,
    authorities: str = "",
) -> Certificates:
    """What a server shows. *verify_clients*: they need one of *authorities*, or of the system's."""

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        accept_from(context, min_version)
        # A client that renegotiates over and over costs much more than it pays.
        context.options |= ssl.OP_NO_RENEGOTIATION
        if verify_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            if not authorities:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return context

    def load(context: ssl.SSLContext) -> None:
        check_file(certificate)
        check_file(key)
        context.load_cert_chain(certificate, key)
        if verify_clients and authorities:
            load_authorities(context, authorities)

    return Certificates(make, load, (certificate, key, authorities if verify_clients else ""))


def trust(authorities: str, min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> Certificates:
    """Whom a client believes: the *authorities* of a file, or without one those of the system."""

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        accept_from(context, min_version)
        if not authorities:
            context.load_default_certs()
        return context

    def load(context: ssl.SSLContext) -> None:
        if authorities:
            load_authorities(context, authorities)

    return Certificates(make, load, (authorities,))


def accept_from(context: ssl.SSLContext, least: ssl.TLSVersion) -> None:
    """Allow TLS from this version on. Raises ValueError when this machine's OpenSSL has no such version."""
    if least >= ssl.TLSVersion.TLSv1_2:
        context.minimum_version = least
        return
    if not (ssl.HAS_TLSv1 if least is ssl.TLSVersion.TLSv1 else ssl.HAS_TLSv1_1):
        raise ValueError("the OpenSSL of this machine has no TLS older than 1.2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it is the operator's wish
        context.minimum_version = least
    # The hashes of TLS 1.0 and 1.1 are below the security level that distributions set.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")


def check_file(path: str) -> None:
    """Raise OSError with the sentence that operators know; the library does not say which file it was."""
    if not path:
        raise OSError("open : no such file or directory")
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise OSError(f"open {path}: {(error.strerror or '').lower()}") from error


def load_authorities(context: ssl.SSLContext, path: str) -> None:
    """Believe the authorities in this file; raises OSError or ValueError."""
    check_file(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ValueError("failed to append certificate to pool") from error


def reason(error: Exception) -> str:
    """Why TLS failed, in a few lower-case words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify client's certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"tls: {error.reason.replace('_', ' ').lower()}"
    return str(error) or type(error).__name__


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file; a mounted secret is exchanged by moving a link."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
