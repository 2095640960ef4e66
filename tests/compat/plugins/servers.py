"""Daemons found on PATH, for suites that run in a client's own environment."""

import asyncio
import contextlib

READY_SECONDS = 10


class Server:
    """A daemon that runs between start() and stop(), and can be started again on the same data."""

    def __init__(self, program, host, port, http_port, flags):
        self.host = host
        self.port = port
        self.http_port = http_port
        self.tcp_address = f"{host}:{port}"
        self.http_address = f"{host}:{http_port}"
        self._command = [
            program,
            "-tcp-address",
            self.tcp_address,
            "-http-address",
            self.http_address,
            *flags,
        ]
        self._process = None

    async def start(self):
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(*self._command)
            async with asyncio.timeout(READY_SECONDS):
                while not await self._answers_ping():  # noqa: ASYNC110  # another process
                    await asyncio.sleep(0.05)

    async def stop(self):
        """Kill the daemon with SIGKILL, so that it cannot save anything."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    async def _answers_ping(self):
        try:
            reader, writer = await asyncio.open_connection(self.host, self.http_port)
        except OSError:
            return False
        writer.write(b"GET /ping HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"OK")


@contextlib.asynccontextmanager
async def running(server):
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


def nsqd(data, host="127.0.0.1", port=4150, http_port=4151, lookupd_tcp_addresses=()):
    """A context manager: nsqd with its data in a new folder below *data*."""
    folder = data / f"nsqd-{port}"
    folder.mkdir()
    flags = ["-data-path", str(folder), "-broadcast-address", host]
    for address in lookupd_tcp_addresses:
        flags += ["-lookupd-tcp-address", address]
    return running(Server("nsqd", host, port, http_port, flags))


def nsqlookupd(host="127.0.0.1", port=4160, http_port=4161):
    """A context manager: nsqlookupd."""
    return running(Server("nsqlookupd", host, port, http_port, []))
