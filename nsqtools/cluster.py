"""Asks all nsqd that have a topic: finds them, connects to them, and words their refusals."""

from collections.abc import Iterable
from typing import Final

from nsqclient._config import tls_context
from nsqclient.wire.durations import SECOND
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, TOPIC_NOT_FOUND, NodeError
from nsqcore.cluster.discovery import LookupdDiscovery
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.secret import SecretFile
from nsqtools.cluster_options import ClusterOptions
from nsqtools.process import Failed

# From one of several nsqd these are no failure: other nsqd have the topic or the channel.
ABSENT: Final = frozenset((TOPIC_NOT_FOUND, CHANNEL_NOT_FOUND))


def cluster_http(options: ClusterOptions) -> ClusterHttp:
    """The connections to the cluster, for an ``async with`` block. Raises Failed."""
    files = {
        "tls_root_ca_file": options.http_client_tls_root_ca_file,
        "tls_cert": options.http_client_tls_cert,
        "tls_key": options.http_client_tls_key,
        "tls_insecure_skip_verify": "true" if options.http_client_tls_insecure_skip_verify else "",
    }
    secret = SecretFile(options.auth_secret_file)
    try:
        tls = tls_context({name: value for name, value in files.items() if value})
    except ValueError as error:
        raise Failed(f"ERROR: --http-client-{str(error).replace('_', '-', 3)}") from error
    try:
        secret.read()
    except (OSError, ValueError) as error:
        raise Failed(f"ERROR: --auth-secret-file: {error}") from error
    return ClusterHttp(
        connect_timeout=options.http_client_connect_timeout / SECOND,
        request_timeout=options.http_client_request_timeout / SECOND,
        tls=tls,
        secret=secret,
        configured=(*options.nsqd_http_address, *options.lookupd_http_address),
        allow_cleartext=options.auth_allow_cleartext,
    )


async def nsqds(http: ClusterHttp, options: ClusterOptions) -> tuple[list[str], list[str]]:
    """The addresses of the nsqd to ask, and a sentence for each nsqlookupd that did not answer.

    Those are the given nsqd, or all that have the topic. Raises Failed when there are none.
    """
    if options.nsqd_http_address:
        return list(dict.fromkeys(options.nsqd_http_address)), []
    found = await LookupdDiscovery(http, options.lookupd_http_address).producers_of(options.topic)
    errors = [f"{error.address}: {reason(error)}" for error in found.errors if error.code != TOPIC_NOT_FOUND]
    if found.failed:
        raise Failed(f"ERROR: {'; '.join(errors)}")
    if not found.value:
        unsure = f" ({'; '.join(errors)})" if errors else ""
        raise Failed(f"ERROR: no nsqlookupd knows an nsqd with topic {options.topic}{unsure}")
    return [producer.http_address for producer in found.value], errors


def reason(error: NodeError) -> str:
    """What went wrong, without the URL and the JSON around it."""
    if error.code == "NOT_FOUND":
        return "it does not know this request; it is another or an older nsqd"
    if error.unreachable:
        return error.reason
    return error.code or error.reason


def not_found_sentence(topic: str, channel: str, errors: Iterable[NodeError]) -> str:
    """The sentence for a topic or channel that no nsqd has; *errors* say which of the two."""
    only_channel = any(error.code == CHANNEL_NOT_FOUND for error in errors)
    what = f"channel {channel} of topic {topic}" if only_channel else f"topic {topic}"
    return f"ERROR: no nsqd has {what}"
