"""TLS as the options want it: for clients, the HTTPS listener, auth servers, nsqlookupds and replicas."""

import ssl
from typing import Any, Final

from nsqcore.process.lifecycle import StartupError
from nsqcore.process.tls import Certificates, reason, server_certificates, trust
from nsqd.options import NsqdOptions

NO_TLS: Final = {
    "tls": False,
    "tls_cipher_suite": "",
    "tls_version": "",
    "tls_negotiated_protocol": "",
    "tls_negotiated_protocol_is_mutual": False,
}


def own_certificates(options: NsqdOptions) -> Certificates | None:
    """The certificates that clients are shown, None without a certificate. Raises StartupError."""
    if not options.has_certificate:
        return None
    try:
        return server_certificates(
            options.tls_cert,
            options.tls_key,
            options.tls_min_version,
            verify_clients=bool(options.tls_client_auth_policy),
            authorities=options.tls_root_ca_file,
        )
    except (OSError, ValueError) as error:
        # An SSLError is an OSError.
        raise StartupError(f"failed to build TLS config - {reason(error)}") from error


def trusted(options: NsqdOptions, *, certificate: str = "", key: str = "") -> Certificates:
    """The authorities trusted for servers that nsqd asks: auth servers, nsqlookupd, replicas.

    *certificate* is shown to them. Raises StartupError.
    """
    least = max(options.tls_min_version, ssl.TLSVersion.TLSv1_2)
    try:
        return trust(options.tls_root_ca_file, least, certificate=certificate, key=key)
    except (OSError, ValueError) as error:
        raise StartupError(f"failed to build client TLS config - {reason(error)}") from error


def to_replicas(options: NsqdOptions) -> Certificates | None:
    """The authorities trusted for replicas, and the certificate shown to them; None without TLS.

    Raises StartupError.
    """
    if not options.replication_tls:
        return None
    if not options.has_certificate:
        return trusted(options)
    return trusted(options, certificate=options.tls_cert, key=options.tls_key)


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
        # OpenSSL's name omits the mode when it is CBC.
        mode = cipher if cipher.startswith(("GCM", "CCM")) else f"CBC-{cipher}"
        name = f"{exchange}-WITH-AES-{size}-{mode}"
    elif name.endswith("-CHACHA20-POLY1305"):
        name = name.replace("-CHACHA20", "-WITH-CHACHA20") + "-SHA256"
    return "TLS_" + name.replace("-", "_")
