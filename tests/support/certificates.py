"""Certificate authorities for tests, and TLS contexts of clients that trust them."""

import ssl
from datetime import datetime
from pathlib import Path

import trustme


class Authority:
    """An authority with its files in a folder, and a certificate for 127.0.0.1 or other names."""

    def __init__(
        self, folder: Path, *names: str, valid: tuple[datetime, datetime] | tuple[None, None] = (None, None)
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._ca = trustme.CA()
        self.file = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.file)
        begins, ends = valid
        server = self._ca.issue_cert(
            *(names or ("127.0.0.1", "localhost")), not_before=begins, not_after=ends
        )
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
        server.private_key_pem.write_to_path(self.key)

    @property
    def flags(self) -> list[str]:
        """Return the flags with which nsqd uses this authority's certificate for TLS."""
        return [f"--tls-cert={self.certificate}", f"--tls-key={self.key}"]

    def client(self, *, name: str = "", issuer: "Authority | None" = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority; *issuer* certifies *name*, if given."""
        context = ssl.create_default_context(cafile=self.file)
        if name:
            (issuer or self)._ca.issue_cert(f"{name}@example.org", common_name=name).configure_cert(context)
        return context

    def client_files(self, name: str, folder: Path) -> None:
        """Write ``NAME.pem`` and ``NAME.key``, the certificate of a client."""
        issued = self._ca.issue_cert(common_name=name)
        (folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
