"""TLS of client connections, of the HTTPS listener and towards auth servers, made once at the start."""

import ssl
from pathlib import Path
from typing import Any, Final

from nsqcore.service.lifecycle import StartupError
from nsqd.options import NsqdOptions

NO_TLS: Final = {
    "tls": False,
    "tls_cipher_suite": "",
    "tls_version": "",
    "tls_negotiated_protocol": "",
    "tls_negotiated_protocol_is_mutual": False,
}


def server_context(options: NsqdOptions) -> ssl.SSLContext | None:
    """What the TLS options make, None without a certificate. Raises StartupError."""
    if not options.has_certificate:
        return None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = options.tls_min_version
        # A client that renegotiates over and over costs much more than it pays.
        context.options |= ssl.OP_NO_RENEGOTIATION
        _check_file(options.tls_cert)
        _check_file(options.tls_key)
        context.load_cert_chain(options.tls_cert, options.tls_key)
        if options.tls_client_auth_policy:
            context.verify_mode = ssl.CERT_REQUIRED
            if options.tls_root_ca_file:
                _load_authorities(context, options.tls_root_ca_file)
            else:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    except (OSError, ValueError) as error:
        # An SSLError is an OSError.
        raise StartupError(f"failed to build TLS config - {reason(error)}") from error
    return context


def client_context(options: NsqdOptions) -> ssl.SSLContext:
    """How auth servers are believed that are asked over HTTPS. Raises StartupError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = options.tls_min_version
    try:
        if options.tls_root_ca_file:
            _load_authorities(context, options.tls_root_ca_file)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise StartupError(f"failed to build client TLS config - {reason(error)}") from error
    return context


def _check_file(path: str) -> None:
    """Raise OSError with the sentence that operators know; the library does not say which file it was."""
    if not path:
        raise OSError("open : no such file or directory")
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise OSError(f"open {path}: {(error.strerror or '').lower()}") from error


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    _check_file(path)
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


def described(connection: ssl.SSLObject | None) -> dict[str, Any]:
    """The TLS part of a client's statistics."""
    cipher = connection.cipher() if connection is not None else None
    if connection is None or cipher is None:
        return NO_TLS
    return {
        "tls": True,
        "tls_cipher_suite": _iana_name(cipher[0]),
        "tls_version": (connection.version() or "").replace("TLSv", "TLS"),
        "tls_negotiated_protocol": "",
        "tls_negotiated_protocol_is_mutual": True,
    }


def _iana_name(name: str) -> str:
    """``ECDHE-RSA-AES128-GCM-SHA256`` as ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``."""
    if name.startswith("TLS_"):
        return name
    exchange, aes, cipher = name.partition("-AES")
    if aes:
        size, cipher = cipher[:3], cipher[4:]
        # What is neither GCM nor CCM is CBC, which goes without saying there.
        mode = cipher if cipher.startswith(("GCM", "CCM")) else f"CBC-{cipher}"
        name = f"{exchange}-WITH-AES-{size}-{mode}"
    elif name.endswith("-CHACHA20-POLY1305"):
        name = name.replace("-CHACHA20", "-WITH-CHACHA20") + "-SHA256"
    return "TLS_" + name.replace("-", "_")
