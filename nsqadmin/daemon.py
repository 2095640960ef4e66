"""Builds nsqadmin from its options, starts it, stops it."""

import asyncio
import secrets
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from nsqadmin.access.rights import Rights, parse_cidr
from nsqadmin.access.roles import parse_grant
from nsqadmin.access.session_secret import SessionSecret
from nsqadmin.access.sessions import Sessions, Signer
from nsqadmin.access.tokens import TokenFile
from nsqadmin.changes.action import Scene
from nsqadmin.changes.alerts import Alerts
from nsqadmin.changes.audit import Audit
from nsqadmin.changes.commands import Commands
from nsqadmin.changes.notify import Notifier
from nsqadmin.changes.runner import ActionRunner
from nsqadmin.collecting.clock import instant
from nsqadmin.collecting.cluster import Cluster
from nsqadmin.collecting.collector import Collector
from nsqadmin.collecting.views import Round
from nsqadmin.history.recorder import CHANGE, Recorder, problem_of
from nsqadmin.history.ring import HistoryFile, HistoryFileError
from nsqadmin.options import LiveOptions, NsqadminOptions
from nsqadmin.pages.history_charts import HistoryCharts
from nsqadmin.pages.static_files import StaticFiles
from nsqadmin.routes import routes
from nsqadmin.stats.limits import parse_limit
from nsqclient.wire.durations import SECOND
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.secret import SecretFile
from nsqcore.http.https import HttpListeners
from nsqcore.http.https_sockets import HttpSockets
from nsqcore.near_misses import meant_address
from nsqcore.process.addresses import split_host_port
from nsqcore.process.lifecycle import StartupError
from nsqcore.process.logs import Log
from nsqcore.process.tls import Certificates, load_authorities, load_certificate, watch

if TYPE_CHECKING:
    from nsqadmin.access.openid import OpenId

# An answer of a large nsqd is several megabytes, and there may be a hundred of them.
MAX_PARSED_BODIES: Final = 4


class NsqadminDaemon:
    """One nsqadmin: an async context in which it serves."""

    def __init__(self, options: NsqadminOptions, log: Log, sockets: HttpSockets) -> None:
        self._log = log
        live = LiveOptions(options, log)
        connect_timeout = options.http_client_connect_timeout / SECOND
        request_timeout = options.http_client_request_timeout / SECOND
        self._certificates = _trusted(options)
        secret = _secret(options.auth_secret_file)

        def cluster_http() -> ClusterHttp:
            return ClusterHttp(
                connect_timeout=connect_timeout,
                request_timeout=request_timeout,
                tls=self._certificates.context,
                secret=secret,
                configured=(*options.nsqlookupd_http_addresses, *options.nsqd_http_addresses),
                allow_cleartext=options.auth_allow_cleartext,
                bodies_at_once=MAX_PARSED_BODIES,
            )

        self._http = cluster_http()
        # For nodes that are down: failures are expected, so /metrics does not count requests to them.
        self._http_of_left = cluster_http()
        self._addresses = {
            "--lookupd-http-address": options.nsqlookupd_http_addresses,
            "--nsqd-http-address": options.nsqd_http_addresses,
        }
        for flag, addresses in self._addresses.items():
            _check_addresses(flag, addresses, 4161 if "lookupd" in flag else 4151)
        if options.proxy_graphite:
            _check_graphite(options.graphite_url)
        with _starting(f"failed to parse --allow-config-from-cidr ({options.allow_config_from_cidr}) -"):
            parse_cidr(options.allow_config_from_cidr)
        with _starting(f"failed to read --dev-static-dir ({options.dev_static_dir}) -"):
            static = StaticFiles(options.dev_static_dir)
        self._notifier = Notifier(
            options.notification_http_endpoint,
            log,
            connect_timeout=connect_timeout,
            request_timeout=request_timeout,
        )
        self.collector = Collector(self._http, self._http_of_left, lambda: live.current, log)
        self._recorder = _recorder(options, log)
        recorder, work = self._recorder, self.collector.work
        if recorder is not None:

            async def record(this: Round) -> None:
                await work.in_thread(lambda: recorder.follow(this))

            self.collector.adder.followers.append(record)
        cluster = self._cluster = Cluster(self._http, lambda: live.current, self.collector)
        _check_texts(options)
        self._alarm = Notifier(
            options.alert_http_endpoint,
            log,
            connect_timeout=connect_timeout,
            request_timeout=request_timeout,
        )
        alerts = Alerts(self._alarm.notify, options.alert_format)
        self.collector.adder.followers.append(alerts.follow)
        if recorder is not None:
            now = instant()
            lasting = [problem_of(event, now) for event in recorder.unresolved()]
            self.collector.adder.restore(lasting)
            alerts.restore(lasting, now)
        rights = Rights(lambda: live.current, _tokens(options), _sessions(options, log))
        audit = _audit(options, log)
        commands = Commands(cluster, [node for entry in audit.unknown() for node in entry.unknown])
        runner = ActionRunner(
            Scene(cluster, commands, alerts),
            log,
            rights=rights,
            audit=audit,
            notify=self._notifier.notify,
            add_to_timeline=partial(recorder.note, CHANGE) if recorder is not None else lambda *_: None,
        )
        self.collector.adder.followers.append(runner.follow)
        self._server = HttpListeners(
            sockets,
            routes(
                live,
                cluster,
                runner,
                static,
                self._http,
                log,
                HistoryCharts(self._recorder, lambda: self.collector.adder.sum),
                alerts,
                _open_id(options),
            ),
            log,
            base_path=options.prefix or "/",
            compress=True,
            tls_required=options.tls_required,
        )
        self._workers: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """The address at which it listens, with the real port."""
        return self._server.address

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        await self._http_of_left.__aenter__()
        self._workers = [
            asyncio.create_task(self._notifier.run(), name="notifications"),
            asyncio.create_task(self._alarm.run(), name="alerts"),
            asyncio.create_task(watch([self._certificates], self._log), name="certificates"),
            *(
                asyncio.create_task(
                    _warn_of_unknown_hosts(flag, addresses, self._log), name=f"resolve {flag}"
                )
                for flag, addresses in self._addresses.items()
            ),
        ]
        await self.collector.__aenter__()
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()
        await self.collector.__aexit__()
        for worker in self._workers:
            worker.cancel()
        await asyncio.wait(self._workers)
        await self._http_of_left.close()
        await self._http.close()
        if self._recorder is not None:
            self._recorder.close()


@contextmanager
def _starting(what: str) -> Iterator[None]:
    """Turn an error of the block into the reason why nsqadmin does not start, after *what* failed."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else ""
        raise StartupError(f"{what} {reason or error}") from error


def _recorder(options: NsqadminOptions, log: Log) -> Recorder | None:
    """Open the history. A temporary file that cannot be made does not prevent the start."""
    if not options.history:
        return None
    try:
        file = HistoryFile(options.history_file)
    except HistoryFileError as problem:
        raise StartupError(f"failed to open --history-file - {problem}") from problem
    except OSError as error:
        if options.history_file:
            raise StartupError(f"failed to open --history-file ({options.history_file}) - {error}") from error
        log.warning("no history is kept, because there is no room for temporary files: %s", error)
        return None
    if file.was_damaged:
        log.warning(
            "%s was no history of this version: it is kept as %s.unreadable, and a new one begins",
            options.history_file,
            options.history_file,
        )
    return Recorder(file)


def _check_texts(options: NsqadminOptions) -> None:
    """Refuse to start with roles or limits that cannot be read."""
    readers: list[tuple[str, tuple[str, ...], Callable[[str], object]]] = [
        ("--role", options.roles, parse_grant),
        ("--alert-limit", options.alert_limits, parse_limit),
    ]
    for flag, texts, read in readers:
        for text in texts:
            with _starting(f"failed to parse {flag} ({text}) -"):
                read(text)


def _tokens(options: NsqadminOptions) -> TokenFile:
    tokens = TokenFile(options.api_token_file)
    with _starting(f"failed to read --api-token-file ({options.api_token_file}) -"):
        _ = tokens.tokens
    return tokens


def _sessions(options: NsqadminOptions, log: Log) -> Sessions | None:
    if not options.oidc_issuer:
        return None
    chosen = secrets.token_bytes(32)
    signer = Signer(lambda: chosen)
    if options.session_secret_file:
        with _starting(f"failed to read --session-secret-file ({options.session_secret_file}) -"):
            signer = Signer(SessionSecret(options.session_secret_file, log))
    return Sessions(signer, options.session_lifetime / SECOND)


def _open_id(options: NsqadminOptions) -> "OpenId | None":
    if not options.oidc_issuer:
        return None
    secret = SecretFile(options.oidc_client_secret_file, "the secret of the client")
    with _starting("--oidc-client-secret-file:"):
        secret.read()
    from nsqadmin.access.openid import OpenId

    return OpenId(
        options.oidc_issuer,
        options.oidc_client_id,
        secret,
        scopes=options.oidc_scopes,
        name_claim=options.oidc_name_claim,
        groups_claim=options.oidc_groups_claim,
        timeout_s=options.http_client_request_timeout / SECOND,
    )


def _audit(options: NsqadminOptions, log: Log) -> Audit:
    with _starting(f"failed to open --audit-file ({options.audit_file}) -"):
        return Audit(options.audit_file, log)


def _secret(path: str) -> SecretFile:
    secret = SecretFile(path)
    with _starting("--auth-secret-file:"):
        secret.read()
    return secret


def _trusted(options: NsqadminOptions) -> Certificates:
    """Return the TLS context for nodes that insist on HTTPS, which follows its files."""
    ca_file = options.http_client_tls_root_ca_file
    certificate, key = options.http_client_tls_cert, options.http_client_tls_key

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if ca_file else ssl.create_default_context()
        if options.http_client_tls_insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def load(context: ssl.SSLContext) -> None:
        if ca_file:
            try:
                load_authorities(context, ca_file)
            except OSError as error:
                raise ValueError(f"failed to read TLS root CA file {ca_file} - {error}") from error
            except ValueError as error:
                raise ValueError(f"failed to AppendCertsFromPEM {ca_file}") from error
        if certificate:
            try:
                load_certificate(context, certificate, key)
            except (OSError, ValueError) as error:
                raise ValueError(f"failed to LoadX509KeyPair {certificate}, {key} - {error}") from error

    try:
        return Certificates(make, load, (ca_file, certificate, key))
    except ValueError as error:
        raise StartupError(str(error)) from error


def _check_addresses(flag: str, addresses: tuple[str, ...], port: int) -> None:
    """Refuse to start if an address is malformed. Whether its host resolves is not checked here."""
    for address in addresses:
        try:
            split_host_port(address)
        except ValueError as error:
            raise StartupError(
                f"failed to resolve {flag} ({address}) - {error}{meant_address(address, port)}"
            ) from error


async def _warn_of_unknown_hosts(flag: str, addresses: tuple[str, ...], log: Log) -> None:
    """Log the names that do not resolve. They may resolve later: each request looks its host up again."""
    loop = asyncio.get_running_loop()
    for address in addresses:
        host, port = split_host_port(address)
        try:
            await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            log.warning(
                "failed to resolve %s (%s) - %s; it is tried again at every request",
                flag,
                address,
                error.strerror or error,
            )


def _check_graphite(url: str) -> None:
    """Refuse to start as a proxy for an address that cannot be used."""
    try:
        place = urlsplit(url)
        usable = place.scheme in {"http", "https"} and bool(place.hostname) and place.port != 0
        problem = "" if usable else "not an http or https address"
    except ValueError as error:
        problem = str(error)
    if problem:
        # The part before the last @ may be a password, even if the rest is malformed.
        raise StartupError(f"failed to parse --graphite-url ({url.rpartition('@')[2]}) - {problem}")


async def serve(options: NsqadminOptions, log: Log, stop: asyncio.Event, sockets: HttpSockets) -> None:
    """Run one nsqadmin until *stop* is set."""
    async with NsqadminDaemon(options, log, sockets) as daemon:
        stopped = asyncio.create_task(stop.wait(), name="stop")
        ends: set[asyncio.Future[Any]] = {stopped, daemon.collector.work.broken}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if daemon.collector.work.broken.done():
            stopped.cancel()
            # Statistics that no longer change resemble an idle cluster, so nsqadmin ends, and its supervisor
            # restarts it.
            daemon.collector.work.broken.result()
