"""Opens listening sockets; failures have the sentences that operators know."""

import asyncio
import errno
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from nsqclient.wire.address import join_host_port
from nsqcore.near_misses import is_no_path, meant_address
from nsqcore.process.accepting import Acceptor
from nsqcore.process.addresses import is_unix_path, split_host_port
from nsqcore.process.lifecycle import StartupError
from nsqcore.process.logs import Log

# All publishers reconnect at the same time after a restart; the kernel caps this at its own limit.
BACKLOG: Final = 4096

# A peer that vanished silently is noticed after 15 + 9 * 15 seconds instead of two hours.
KEEPALIVE_IDLE_S: Final = 15
_EVERY_INTERFACE: Final = frozenset(("", "0.0.0.0", "::"))


def bind(address: str, usual_port: int = 0, *, allow_unix: bool = False) -> socket.socket:
    """Return a listening, non-blocking socket on *address*, or raise StartupError with one sentence.

    *usual_port* is for the hint after an invalid address.
    """
    try:
        if allow_unix and is_unix_path(address) and not is_no_path(address):
            return _bind_unix(address)
        return _bind_tcp(address)
    except ValueError as error:
        meant = meant_address(address, usual_port)
        raise StartupError(f"listen ({address}) failed - {error}{meant}") from error
    except OSError as error:
        raise StartupError(f"listen ({address}) failed - {error}") from error


def shown_address(sock: socket.socket) -> str:
    """The real address of a listening socket, as log lines and ``listening on`` show it."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return str(name)
    return join_host_port(name[0], name[1])


def listen_port(sock: socket.socket) -> int | None:
    """The port that is bound, or None on a unix socket."""
    return None if sock.family == socket.AF_UNIX else int(sock.getsockname()[1])


def peer_ip(peername: object) -> str:
    """The IP address of the other side, empty on a unix socket."""
    if not (isinstance(peername, tuple) and peername):
        return ""
    ip = str(peername[0])
    # An IPv4 client of a socket for both families.
    mapped = ip.removeprefix("::ffff:")
    return ip if ":" in mapped else mapped


def shown_peer(peername: object) -> str:
    """``ip:port`` of the other side; an unnamed unix socket is ``@``."""
    if isinstance(peername, tuple) and len(peername) >= 2:
        return join_host_port(peer_ip(peername), peername[1])
    return "@"


def set_keepalive(sock: socket.socket) -> None:
    """Let the kernel probe an idle peer, so that a half-open connection ends."""
    if sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_IDLE_S)


def set_cork(sock: socket.socket, *, on: bool) -> None:
    """Hold back written bytes until a segment is full, the connection ends, or this is switched off."""
    if sock.family in {socket.AF_INET, socket.AF_INET6}:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)


class TcpServer:
    """A bound address and, once started, the loop that accepts on it."""

    def __init__(self, kind: str, sock: socket.socket, log: Log) -> None:
        self.kind = kind
        self.sock = sock
        self.address = shown_address(sock)
        self.port = listen_port(sock)
        self._log = log
        self._acceptor: Acceptor | None = None

    async def start(self, factory: Callable[[], asyncio.Protocol]) -> None:
        self._acceptor = Acceptor(self.kind, self.sock, factory, self._log)
        self._acceptor.start()
        self._log.info("%s: listening on %s", self.kind, self.address)

    async def close(self) -> None:
        """Accept no more; the caller ends existing connections."""
        self._log.info("%s: closing %s", self.kind, self.address)
        remove_unix_file(self.sock)
        if self._acceptor is not None:
            await self._acceptor.close()
            self._acceptor = None
        self.sock.close()


def remove_unix_file(sock: socket.socket) -> None:
    """Remove the file of a unix socket that is still open; other sockets have none."""
    if sock.family == socket.AF_UNIX and sock.fileno() != -1:
        _unlink_socket(sock.getsockname())


def _bind_tcp(address: str) -> socket.socket:
    try:
        host, port_text = split_host_port(address)
    except ValueError as error:
        raise ValueError(f"listen tcp: {error}") from error
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= 65535):
        raise ValueError(f"listen tcp: address {address}: invalid port {port_text or '(none)'}")
    port = int(port_text)
    family, name = _resolve(host, port)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restarted daemon must get its port back while old connections are in TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host in _EVERY_INTERFACE else 1)
        sock.setblocking(False)
        sock.bind(name)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        shown = join_host_port(host if host == "0.0.0.0" else str(name[0]), port)
        raise OSError(f"listen tcp {shown}: bind: {_reason(error)}") from error
    return sock


def _resolve(
    host: str, port: int
) -> tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]:
    if host in _EVERY_INTERFACE - {"::"}:
        # ":4150" and "0.0.0.0:4150" mean, as in NSQ, every interface, of both families if there is IPv6.
        if _has_ipv6():
            return socket.AF_INET6, ("::", port, 0, 0)
        return socket.AF_INET, ("0.0.0.0", port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(f"listen tcp: lookup {host}: no such host") from error
    # A name with both families is bound on IPv4, where old clients expect it.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    family, _, _, _, name = found[0]
    return family, name  # type: ignore[return-value] # AI_PASSIVE on TCP gives address tuples only


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _bind_unix(path: str) -> socket.socket:
    if not path:
        raise ValueError("listen unix: empty address")
    if _is_stale(path):
        _unlink_socket(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind(path)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise OSError(f"listen unix {path}: bind: {_reason(error)}") from error
    return sock


def _is_stale(path: str) -> bool:
    """Whether *path* is a socket file on which no process listens, such as a killed daemon leaves."""
    try:
        if not stat.S_ISSOCK(Path(path).stat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(path)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _unlink_socket(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "address already in use"
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
