"""The HTTP side of a daemon on its plain port and, with a certificate, on one with TLS."""

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack

from nsqcore.service.httpapi import tls_required
from nsqcore.service.https_options import HttpsOptions
from nsqcore.service.httpserver import HttpServer
from nsqcore.service.lifecycle import StartupError
from nsqcore.service.listen import bind, listen_port
from nsqcore.service.logs import Log
from nsqcore.service.router import Route
from nsqcore.service.tls import Certificates, reason, server_certificates, watch


class HttpListeners:
    """Both listeners of one route table, bound on creation, which is where StartupError comes from."""

    def __init__(
        self,
        options: HttpsOptions,
        routes: Iterable[Route],
        log: Log,
        *,
        base_path: str = "/",
        compress: bool = False,
        refuse_foreign: bool = False,
    ) -> None:
        """*refuse_foreign* as in :class:`HttpServer`."""
        self._log = log
        self._certificates = certificates(options)
        self._watching: asyncio.Task[None] | None = None
        with ExitStack() as opened:
            plain = opened.enter_context(bind(options.http_address))
            secure = None
            if self._certificates is not None and options.https_address:
                secure = opened.enter_context(bind(options.https_address))
            # All are there: they are the servers' to close.
            opened.pop_all()
        table = list(routes)
        refusal = tls_required((listen_port(secure) or 0) if secure else 0) if options.tls_required else None
        self.http = HttpServer(
            plain,
            table,
            log,
            base_path=base_path,
            compress=compress,
            refusal=refusal,
            refuse_foreign=refuse_foreign,
        )
        self.https: HttpServer | None = None
        if secure is not None and self._certificates is not None:
            self.https = HttpServer(
                secure,
                table,
                log,
                kind="HTTPS",
                base_path=base_path,
                compress=compress,
                ssl_context=self._certificates.context,
                refuse_foreign=refuse_foreign,
            )

    @property
    def address(self) -> str:
        """Where plain HTTP is spoken, with the real port."""
        return self.http.address

    @property
    def port(self) -> int | None:
        return self.http.port

    async def start(self) -> None:
        await self.http.start()
        if self.https is not None:
            await self.https.start()
        if self._certificates is not None:
            self._watching = asyncio.create_task(watch([self._certificates], self._log), name="certificates")

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self.http.close()
        if self.https is not None:
            await self.https.close()


def certificates(options: HttpsOptions) -> Certificates | None:
    """What the flags name, None without a certificate. Raises StartupError."""
    if not options.has_certificate:
        return None
    try:
        return server_certificates(options.tls_cert, options.tls_key, options.tls_min_version)
    except (OSError, ValueError) as error:
        raise StartupError(f"failed to build TLS config - {reason(error)}") from error
