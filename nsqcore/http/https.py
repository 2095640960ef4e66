"""The HTTP side of a daemon on its plain port and, with a certificate, on one with TLS."""

import asyncio
from collections.abc import Iterable

from nsqcore.http.api import tls_required as refusal_of_plain
from nsqcore.http.https_sockets import HttpSockets
from nsqcore.http.router import Route
from nsqcore.http.server import HttpServer
from nsqcore.process.listen import listen_port
from nsqcore.process.logs import Log
from nsqcore.process.tls import watch


class HttpListeners:
    """Both listeners of one route table."""

    def __init__(
        self,
        sockets: HttpSockets,
        routes: Iterable[Route],
        log: Log,
        *,
        tls_required: bool,
        base_path: str = "/",
        compress: bool = False,
        refuse_foreign: bool = False,
    ) -> None:
        """*refuse_foreign* as in :class:`HttpServer`."""
        self._log = log
        self._certificates = sockets.certificates
        self._watching: asyncio.Task[None] | None = None
        plain, secure = sockets.plain, sockets.secure
        table = list(routes)
        refusal = refusal_of_plain((listen_port(secure) or 0) if secure else 0) if tls_required else None
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
                [secure],
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
        """The address of plain HTTP, with the bound port."""
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
