"""The options of nsqlookupd."""

import socket
from dataclasses import dataclass

from nsqclient.wire.durations import MINUTE, SECOND, Duration
from nsqcore.near_misses import address_check
from nsqcore.options.https_options import HttpsOptions, listening
from nsqcore.options.kinds import DIAL_LIST, DURATION
from nsqcore.options.options import option
from nsqcore.process.addresses import split_host_port


@dataclass(frozen=True, kw_only=True)
class NsqlookupdOptions(HttpsOptions):
    log_prefix: str = option("[nsqlookupd] ", help="log message prefix")
    tcp_address: str = option("0.0.0.0:4160", help="<addr>:<port> to listen on for TCP clients")
    http_address: tuple[str, ...] = listening("0.0.0.0:4161")
    https_address: str = option("0.0.0.0:4162", help="<addr>:<port> to listen on for HTTPS clients")
    broadcast_address: str = option(
        factory=socket.gethostname,
        help="address of this lookupd node, by which nsqd reaches its HTTP side (default to the OS hostname)",
    )
    inactive_producer_timeout: Duration = option(
        5 * MINUTE,
        kind=DURATION,
        help="duration of time a producer will remain in the active list since its last ping",
    )
    tombstone_lifetime: Duration = option(
        45 * SECOND,
        kind=DURATION,
        help="duration of time a producer will remain tombstoned if registration remains",
    )
    nsqlookupd_http_addresses: tuple[str, ...] = option(
        (),
        flag="lookupd-http-address",
        check=address_check("lookupd-http-address", 4161, split_host_port),
        kind=DIAL_LIST,
        help="HTTP address of another nsqlookupd, whose nsqds /ready waits for after a start"
        " (may be given multiple times; its own address does no harm)",
    )
    reconnect_interval: Duration = option(
        15 * SECOND,
        kind=DURATION,
        help="how long nsqds take to reconnect after a start; /ready waits this long when no other nsqlookupd"
        " knows them",
    )
    ready_timeout: Duration = option(
        MINUTE,
        kind=DURATION,
        help="longest time that /ready waits for one nsqd in ten of those that another nsqlookupd named",
    )
    tls_root_ca_file: str = option(
        "", help="path to certificate authority file, for other nsqlookupds that require HTTPS"
    )
