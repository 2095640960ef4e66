"""Publish to every nsqd of a cluster and read all of it back by way of nsqlookupd; one sentence, exit 0 or 1.

    python -m nsqtools.selftest --lookupd-http-address=127.0.0.1:4161 --producers=2

It works like an application: nsqd registers with nsqlookupd, its broadcast address resolves and accepts
connections, messages are published and received. The topic is ephemeral, so nsqd deletes it afterwards.
"""

import argparse
import asyncio
import logging
import secrets
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Final

from nsqclient._config import Config, tls_context
from nsqclient._consumer import Consumer
from nsqclient._message import Message
from nsqclient._producer import Producer
from nsqclient.wire.address import join_host_port
from nsqclient.wire.errors import ProtocolError
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.cluster.secret import SecretFile
from nsqcore.options.arguments import ArgumentParser
from nsqcore.process.output import write_message

# The topic exists on each nsqd from the first message on, so it need not be looked up more often.
POLL_SECONDS: Final = 0.5

# Messages of one MPUB; far below the limits of any configuration that works.
BATCH: Final = 500


class SelfTestError(Exception):
    """The cluster did not work; the text says what failed."""


class Sent:
    """The bodies that were acknowledged and not received yet, each with the nsqd that took it."""

    def __init__(self) -> None:
        self.missing: dict[bytes, str] = {}
        self.count = 0
        self.all_back = asyncio.Event()

    def add(self, bodies: list[bytes], nsqd: str) -> None:
        self.missing.update(dict.fromkeys(bodies, nsqd))
        self.count += len(bodies)

    def received(self, delivery: Message) -> None:
        self.missing.pop(delivery.body, None)
        if not self.missing:
            self.all_back.set()

    def __str__(self) -> str:
        per_nsqd = Counter(self.missing.values())
        return ", ".join(f"{count} from {nsqd}" for nsqd, count in sorted(per_nsqd.items()))


async def find_nsqds(lookupd_http_address: str, wanted: int, config: Config) -> list[str]:
    """Return the TCP addresses of all nsqd once there are as many as wanted; the caller limits the time."""
    seen = "it was not asked yet"
    try:
        async with ClusterHttp(tls=config.lookupd_tls_context) as http:
            lookupd = LookupdApi(http, lookupd_http_address)
            while True:
                try:
                    nodes = await lookupd.nodes()
                except NodeError as error:
                    seen = str(error)
                else:
                    found = {join_host_port(node.broadcast_address, node.tcp_port) for node in nodes}
                    if len(found) >= wanted:
                        return sorted(found)
                    seen = f"it knows {len(found)}: {', '.join(sorted(found)) or 'none'}"
                await asyncio.sleep(POLL_SECONDS)
    except asyncio.CancelledError:
        raise SelfTestError(
            f"nsqlookupd at {lookupd_http_address} did not name {wanted} nsqd in time; {seen}"
        ) from None


async def publish(nsqd: str, topic: str, messages: int, sent: Sent, config: Config) -> None:
    """Publish to one nsqd; acknowledged messages are noted as sent."""
    async with Producer(nsqd, config=config) as producer:
        for first in range(0, messages, BATCH):
            bodies = [f"{nsqd} {n}".encode() for n in range(first, min(first + BATCH, messages))]
            try:
                await producer.multi_publish(topic, bodies)
            except (OSError, ProtocolError) as error:
                raise SelfTestError(f"nsqd at {nsqd} took no message: {error}") from error
            sent.add(bodies, nsqd)


async def run(
    lookupd_http_address: str, producers: int, messages: int, seconds: float, config: Config
) -> str:
    """Return the sentence about success; raises SelfTestError with the sentence about a failure."""
    began = time.monotonic()
    topic = f"selftest-{secrets.token_hex(4)}#ephemeral"
    sent = Sent()
    try:
        async with asyncio.timeout(seconds):
            nsqds = await find_nsqds(lookupd_http_address, producers, config)
            for nsqd in nsqds:
                await publish(nsqd, topic, messages, sent, config)
            async with Consumer(
                topic,
                "selftest#ephemeral",
                sent.received,
                lookupd_addresses=[lookupd_http_address],
                config=replace(config, max_in_flight=100 * len(nsqds)),
            ):
                await sent.all_back.wait()
    except TimeoutError:
        raise SelfTestError(f"of {sent.count} messages did not come back in time: {sent}") from None
    elapsed = time.monotonic() - began
    return f"{sent.count} messages went through {len(nsqds)} nsqd ({', '.join(nsqds)}) in {elapsed:.2f} s"


def client_config(arguments: argparse.Namespace) -> Config:
    """The settings for connections to the cluster. Raises SelfTestError."""
    tls: dict[str, str] = {}
    for name in ("tls_root_ca_file", "tls_cert", "tls_key"):
        if value := getattr(arguments, name):
            tls[name] = value
    try:
        trusted = tls_context(tls) if tls else None
        secret = SecretFile(arguments.auth_secret_file).read()
        if secret and not (arguments.tls or arguments.auth_allow_cleartext):
            # nsqlookupd names every nsqd, and any host can register there.
            raise ValueError("--auth-secret-file needs --tls or --auth-allow-cleartext")
        return Config(
            lookupd_poll_interval=POLL_SECONDS,
            lookupd_poll_timeout=5,
            tls=(trusted or True) if arguments.tls else False,
            lookupd_tls=trusted or False,
            auth_secret=secret,
            auth_allow_cleartext=arguments.auth_allow_cleartext,
        )
    except (OSError, ValueError) as error:
        raise SelfTestError(str(error)) from error


def add_client_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that client_config() reads."""
    parser.add_argument("--tls", action="store_true", help="speak TLS to nsqd")
    parser.add_argument(
        "--tls-root-ca-file", default="", metavar="FILE", help="trusted certificate authorities"
    )
    parser.add_argument("--tls-cert", default="", metavar="FILE", help="certificate to show")
    parser.add_argument("--tls-key", default="", metavar="FILE", help="its key")
    parser.add_argument("--auth-secret-file", default="", metavar="FILE", help="file with the AUTH secret")
    parser.add_argument(
        "--auth-allow-cleartext", action="store_true", help="send the AUTH secret also without TLS"
    )


def main() -> int:
    parser = ArgumentParser(prog="selftest", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--lookupd-http-address", required=True, metavar="HOST:PORT", help="or a URL with https"
    )
    parser.add_argument("--producers", type=int, default=1, help="how many nsqd there must be at least")
    parser.add_argument("--messages", type=int, default=100, help="how many messages to send to each")
    parser.add_argument("--timeout", type=float, default=60, help="timeout in seconds")
    add_client_flags(parser)
    arguments = parser.parse_args()
    # The client's log lines (a refused connection) help to explain a failure.
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        sentence = asyncio.run(
            run(
                arguments.lookupd_http_address,
                arguments.producers,
                arguments.messages,
                arguments.timeout,
                client_config(arguments),
            )
        )
    except SelfTestError as error:
        write_message(f"selftest failed: {error}")
        return 1
    write_message(f"selftest passed: {sentence}", sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
