"""Certificates in files, which are read at the start and again whenever they change."""

import asyncio
import os
import ssl
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from nsqcore.process.file_stamp import FileStamp, stamp_of
from nsqcore.process.logs import Log

# A renewed certificate is written weeks before the old one expires, so this is soon enough.
CHECK_S: Final = 2.0

Stamp = tuple[FileStamp | None, ...]


class Certificates:
    """A TLS context whose files can be loaded again; connections made after that use the new files.

    An authority that was removed from its file is trusted until the restart.
    """

    def __init__(
        self, make: Callable[[], ssl.SSLContext], load: Callable[[ssl.SSLContext], None], files: Iterable[str]
    ) -> None:
        """*load* loads *files* into a context of *make*; it raises OSError or ValueError with a reason."""
        self._make = make
        self._load = load
        self.files = tuple(file for file in files if file)
        self._stamp = self._check_files()
        self.context = make()
        load(self.context)

    def refresh(self) -> bool:
        """Load the files again if they changed; return whether they had. Raises OSError or ValueError."""
        stamp = self._check_files()
        if stamp == self._stamp:
            return False
        # Loaded into a new context first, so that an error leaves the context in use untouched.
        self._load(self._make())
        self._load(self.context)
        self._stamp = stamp
        return True

    def _check_files(self) -> Stamp:
        return tuple(_stamp(Path(file)) for file in self.files)


async def watch(watched: Iterable[Certificates], log: Log) -> None:
    """Keep *watched* up to date forever; a warning about an unusable file is logged once."""
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
    """The certificate of a server; *verify_clients* requires one of clients, from *authorities* or the
    system's.
    """

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        accept_from(context, min_version)
        # A client that renegotiates again and again would cost the server much more than the client.
        context.options |= ssl.OP_NO_RENEGOTIATION
        if verify_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            if not authorities:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return context

    def load(context: ssl.SSLContext) -> None:
        load_certificate(context, certificate, key)
        if verify_clients and authorities:
            load_authorities(context, authorities)

    return Certificates(make, load, (certificate, key, authorities if verify_clients else ""))


def trust(
    authorities: str,
    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    *,
    certificate: str = "",
    key: str = "",
) -> Certificates:
    """The authorities that a client trusts: those of a file, or without one those of the system.

    With *certificate* and *key* the client shows that certificate to servers that ask for one.
    """

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        accept_from(context, min_version)
        if not authorities:
            context.load_default_certs()
        return context

    def load(context: ssl.SSLContext) -> None:
        if authorities:
            load_authorities(context, authorities)
        if certificate:
            load_certificate(context, certificate, key)

    return Certificates(make, load, (authorities, certificate, key))


@contextmanager
def without_system_authorities() -> Iterator[None]:
    """Import aiohttp within this: it reads the authorities of the system into a context when it is imported.

    That is a tenth of a start. Connections must then name their own context.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def accept_from(context: ssl.SSLContext, least: ssl.TLSVersion) -> None:
    """Allow TLS from version *least* on. Raises ValueError when this machine's OpenSSL does not have it."""
    if least >= ssl.TLSVersion.TLSv1_2:
        context.minimum_version = least
        return
    if not (ssl.HAS_TLSv1 if least is ssl.TLSVersion.TLSv1 else ssl.HAS_TLSv1_1):
        raise ValueError("the OpenSSL of this machine has no TLS older than 1.2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the operator asked for it
        context.minimum_version = least
    # The hashes of TLS 1.0 and 1.1 are below the security level that distributions set.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")


def check_file(path: str) -> None:
    """Raise OSError with the sentence that operators know, because the library does not name the file."""
    if not path:
        raise OSError("open : no such file or directory")
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise OSError(f"open {path}: {(error.strerror or '').lower()}") from error


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Show the certificate in the file *certificate*, whose private key is in the file *key*.

    Raises OSError or ValueError, which name the file that cannot be used; the library does not.
    """
    check_file(certificate)
    check_file(key)

    # Without this the library would ask for a password at the terminal.
    def password() -> str:
        raise ValueError(f"tls: the private key in {key} is encrypted, which is not supported")

    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}:
            what = f"the private key in {key} does not match the certificate in {certificate}"
        elif not _has_certificate(certificate):
            what = f"{certificate} contains no certificate in PEM"
        elif error.reason in {None, "PEM_LIB", "NO_START_LINE"}:
            what = f"{key} contains no private key in PEM"
        else:  # for example a key that is too short
            what = f"{certificate} and {key}: {_reason_text(error.reason)}"
        raise ValueError(f"tls: {what}") from error


def _has_certificate(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


def load_authorities(context: ssl.SSLContext, path: str) -> None:
    """Trust the authorities in the file *path*; raises OSError or ValueError."""
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
        return f"tls: {_reason_text(error.reason)}"
    return str(error) or type(error).__name__


def _reason_text(reason: str) -> str:
    return reason.replace("_", " ").lower()


def _stamp(path: Path) -> FileStamp | None:
    try:
        return stamp_of(path)
    except OSError:
        return None
