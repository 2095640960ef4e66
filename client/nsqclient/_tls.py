"""Makes a TLS context from options as command lines give them."""

import ssl
from collections.abc import Mapping
from typing import Final

TLS_OPTIONS: Final = frozenset(
    ("tls_root_ca_file", "tls_insecure_skip_verify", "tls_cert", "tls_key", "tls_min_version")
)

# "ssl3.0" was accepted once. No library speaks it today, so it means the lowest version supported.
_VERSIONS: Final = {
    "ssl3.0": ssl.TLSVersion.MINIMUM_SUPPORTED,
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}
_TRUE: Final = frozenset(("1", "t", "T", "true", "TRUE", "True"))


def tls_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """Build a client's context from ``tls_*`` options; ValueError says which option cannot be used."""
    try:
        context = ssl.create_default_context(cafile=options.get("tls_root_ca_file"))
    except OSError as error:
        raise ValueError(f"tls_root_ca_file {options.get('tls_root_ca_file')!r}: {error}") from error
    if options.get("tls_insecure_skip_verify") in _TRUE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = options.get("tls_cert"), options.get("tls_key")
    if bool(certificate) != bool(key):
        raise ValueError("tls_cert and tls_key are needed together")
    if certificate:
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            raise ValueError(f"tls_cert {certificate!r} and tls_key {key!r}: {error}") from error
    if version := options.get("tls_min_version"):
        if version not in _VERSIONS:
            raise ValueError(f"tls_min_version {version!r} is none of {', '.join(_VERSIONS)}")
        context.minimum_version = _VERSIONS[version]
    return context
