"""Opening a connection: dial, greet, negotiate, encrypt, compress, authenticate."""

import asyncio
import json
import logging
import socket
import ssl
from typing import Final

from nsqclient._config import Config
from nsqclient._connection import Connection
from nsqclient._errors import AuthError, ConnectionLostError, HandshakeError, UnreachableError
from nsqclient._listener import Listener
from nsqclient._timeouts import running_timeout
from nsqclient.wire import commands
from nsqclient.wire.address import split_address
from nsqclient.wire.compression import Deflate, Snappy
from nsqclient.wire.errors import E_AUTH_FAILED, E_UNAUTHORIZED, ProtocolError
from nsqclient.wire.frames import OK
from nsqclient.wire.negotiated import parse_negotiated

log = logging.getLogger("nsqclient")

_AUTH_CODES: Final = frozenset({E_AUTH_FAILED, E_UNAUTHORIZED})


async def connect(
    address: str,
    config: Config,
    listener: Listener,
    answer_timeout: float | None = None,
    *,
    is_configured: bool,
) -> Connection:
    """Open a connection to ``host:port``; raises NSQError when that fails.

    It takes at most ``dial_timeout`` for the connection and *answer_timeout* for the handshake, which is
    ``read_timeout`` unless it is less. It also limits the wait for all later answers.

    *is_configured* distinguishes the user's addresses from those of nsqlookupd. Any host can register at
    nsqlookupd, so those get no secret without TLS.
    """
    patience = config.read_timeout if answer_timeout is None else min(config.read_timeout, answer_timeout)
    loop = asyncio.get_running_loop()
    local = split_address(config.local_addr) if config.local_addr else None
    try:
        host, port = split_address(address)
        async with running_timeout(config.dial_timeout):
            _, connection = await loop.create_connection(
                lambda: Connection(address, config, listener), host, port, local_addr=local
            )
    except ConnectionRefusedError as error:
        # Event loops differ in the text of this error, and some omit the address.
        raise UnreachableError(f"{address}: connection refused") from error
    except TimeoutError as error:
        raise UnreachableError(
            f"{address} did not accept a connection in {config.dial_timeout:g} s"
        ) from error
    except socket.gaierror as error:
        raise UnreachableError(f"{address}: no such host ({error.strerror})") from error
    except OSError as error:
        raise UnreachableError(f"{address}: {error}") from error
    except ValueError as error:
        # No name can have an empty label, or a long one; nsqlookupd may say it all the same.
        raise UnreachableError(f"{address}: no such host ({error})") from error
    connection.give_up_after(patience)
    try:
        async with running_timeout(patience):
            await _shake_hands(
                connection, host, may_send_cleartext=is_configured or config.auth_allow_cleartext
            )
    except TimeoutError as error:
        failure = HandshakeError(f"{address} did not answer the handshake in {patience:g} s")
        connection.abandon(failure)
        raise failure from error
    except BaseException:
        connection.abandon(ConnectionLostError(f"the handshake with {address} failed"))
        raise
    return connection


async def _shake_hands(connection: Connection, host: str, *, may_send_cleartext: bool) -> None:
    config = connection.config
    connection.send(commands.MAGIC_V2)
    answer = await connection.request(commands.identify(config.identify_settings()))
    try:
        negotiated = parse_negotiated(answer)
    except ValueError as error:
        raise HandshakeError(
            f"the answer of {connection.address} to IDENTIFY is not understood: {error}"
        ) from error
    if config.tls:
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
        if not (config.tls or may_send_cleartext or not config.auth_secret):
            raise AuthError(
                f"{connection.address} requires authentication and was named by nsqlookupd: without TLS the "
                "auth_secret is not sent to it, unless auth_allow_cleartext is set"
            )
        await _authenticate(connection)
    if connection.is_closed:
        raise connection.failure or ConnectionLostError(f"{connection.address} is closed")
    connection.established(negotiated)


async def _start_tls(connection: Connection, host: str) -> None:
    confirmed = connection.expect()  # nsqd's OK may come with the end of the TLS handshake
    context = connection.config.tls_context or ssl.create_default_context()
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
    except (ValueError, AttributeError, RecursionError) as error:
        raise HandshakeError(
            f"the answer of {connection.address} to AUTH is not understood: {error}"
        ) from error
    log.info("(%s) auth accepted, identity %r, %s permissions", connection.address, identity, permissions)
