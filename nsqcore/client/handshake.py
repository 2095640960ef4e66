"""Opening a connection: dial, greet, negotiate, encrypt, compress, authenticate."""

import asyncio
import json
import logging
import socket
import ssl
from typing import Final

from nsqcore.client.config import Config
from nsqcore.client.connection import Connection, Listener
from nsqcore.client.errors import AuthError, ConnectionLostError, HandshakeError
from nsqcore.client.running_time import running_timeout
from nsqcore.wire import commands
from nsqcore.wire.address import split_address
from nsqcore.wire.compression import Deflate, Snappy
from nsqcore.wire.errors import E_AUTH_FAILED, E_UNAUTHORIZED, ProtocolError
from nsqcore.wire.frames import OK
from nsqcore.wire.identify import parse_negotiated

log = logging.getLogger("nsqcore.client")

_AUTH_CODES: Final = frozenset({E_AUTH_FAILED, E_UNAUTHORIZED})


async def connect(address: str, config: Config, listener: Listener) -> Connection:
    """Open a connection to ``host:port``; OSError or ``ProtocolError`` when that fails.

    It takes ``dial_timeout`` for the connection and ``read_timeout`` for the handshake at most.
    """
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    local = split_address(config.local_addr) if config.local_addr else None
    try:
        async with running_timeout(config.dial_timeout):
            _, connection = await loop.create_connection(
                lambda: Connection(address, config, listener), host, port, local_addr=local
            )
    except TimeoutError as error:
        raise TimeoutError(f"{address} did not accept a connection in {config.dial_timeout:g} s") from error
    except socket.gaierror as error:
        raise ConnectionError(f"{address}: no such host ({error.strerror})") from error
    try:
        async with running_timeout(config.read_timeout):
            await _shake_hands(connection, host)
    except TimeoutError as error:
        failure = HandshakeError(f"{address} did not answer the handshake in {config.read_timeout:g} s")
        connection.abandon(failure)
        raise failure from error
    except BaseException:
        connection.abandon(ConnectionLostError(f"the handshake with {address} failed"))
        raise
    return connection


async def _shake_hands(connection: Connection, host: str) -> None:
    config = connection.config
    connection.send(commands.MAGIC_V2)
    answer = await connection.request(commands.identify(config.identify_settings()))
    try:
        negotiated = parse_negotiated(answer)
    except ValueError as error:
        raise HandshakeError(
            f"the answer of {connection.address} to IDENTIFY is not understood: {error}"
        ) from error
    if config.tls_v1:
        if not negotiated.tls_v1:
            raise HandshakeError(f"{connection.address} does not offer TLS")
        await _start_tls(connection, host)
    if negotiated.deflate:
        confirmed = connection.expect()
        connection.compress(Deflate(negotiated.deflate_level or config.deflate_level))
        _check_upgrade(connection, "deflate", await confirmed)
    elif negotiated.snappy:
        confirmed = connection.expect()
        connection.compress(Snappy())
        _check_upgrade(connection, "snappy", await confirmed)
    elif config.deflate or config.snappy:
        log.warning("(%s) does not offer the compression asked for", connection.address)
    if negotiated.auth_required:
        await _authenticate(connection)
    if connection.is_closed:
        raise connection.failure or ConnectionLostError(f"{connection.address} is closed")
    connection.established(negotiated)


async def _start_tls(connection: Connection, host: str) -> None:
    confirmed = connection.expect()  # nsqd's OK may come with the end of the TLS handshake
    context = connection.config.tls_config or ssl.create_default_context()
    try:
        transport = await asyncio.get_running_loop().start_tls(
            connection.transport, connection, context, server_hostname=host
        )
    except ssl.SSLCertVerificationError as error:
        raise HandshakeError(
            f"{connection.address}: certificate not accepted: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        raise HandshakeError(f"{connection.address}: TLS failed: {error.reason or error}") from error
    except ConnectionError as error:
        raise HandshakeError(
            f"{connection.address} closed the connection during the TLS handshake"
        ) from error
    if transport is None:
        raise HandshakeError(f"{connection.address} closed the connection during the TLS handshake")
    connection.upgrade(transport)
    _check_upgrade(connection, "TLS", await confirmed)


def _check_upgrade(connection: Connection, what: str, answer: bytes) -> None:
    if answer != OK:
        raise HandshakeError(f"{connection.address} answered {answer[:40]!r} to the upgrade to {what}")


async def _authenticate(connection: Connection) -> None:
    if not connection.config.auth_secret:
        raise AuthError(f"{connection.address} requires authentication, and there is no auth_secret")
    try:
        answer = await connection.request(commands.auth(connection.config.auth_secret))
    except ProtocolError as error:
        if error.code not in _AUTH_CODES:
            raise
        raise AuthError(f"{connection.address} refused the auth_secret: {error}") from error
    try:
        granted = json.loads(answer)
        identity, permissions = granted.get("identity"), granted.get("permission_count")
    except (ValueError, AttributeError) as error:
        raise HandshakeError(
            f"the answer of {connection.address} to AUTH is not understood: {error}"
        ) from error
    log.info("(%s) auth accepted, identity %r, %s permissions", connection.address, identity, permissions)
