"""Explains why an nsqd cannot be used, in a sentence for the person who runs the query. Pure."""

from typing import Final

from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.http import NOT_HTTP

# Codes of nsqd's HTTP API, and their meaning for a reader of the log.
_KNOWN: Final = {
    # The original answers with this to paths that it does not have.
    "NOT_FOUND": "has no log that can be read by position: it is the nsqd written in Go, or not an nsqd; "
    "nsq_to_nsq copies a topic from there to an nsqd that has one",
    "TLS_REQUIRED": "insists on HTTPS and does not say on which port",
    "AUTH_REQUIRED": "wants the AUTH secret (option authSecretFile)",
    "AUTH_FAILED": "could not have the AUTH secret checked, or it is not valid",
    "UNAUTHORIZED": "does not let the AUTH secret of authSecretFile read this topic",
    "CANNOT_READ": "cannot read its disk",
}
# The same for a writer.
_WHILE_WRITTEN: Final = {
    "NOT_FOUND": "takes no headers and no dedup_id: it is the nsqd written in Go, or not an nsqd; write to "
    "other nsqds, or leave these columns out",
    "UNAUTHORIZED": "does not let the AUTH secret of authSecretFile publish to this topic",
}


def explain(producer: str, error: NodeError) -> str:
    """Say why *producer* cannot be used."""
    known = _reason(error)
    if known:
        return f"nsqd {producer} {known}: {_shown(error)}"
    problem = "does not answer" if error.unreachable else "gave no usable answer"
    return f"nsqd {producer} {problem}: {_shown(error)}"


def explain_lookup(address: str, error: NodeError) -> str:
    """Say why an nsqlookupd cannot be used."""
    if error.code == "NOT_FOUND":
        return f"{address} is not an nsqlookupd, it has no /lookup; is it an nsqd?"
    if error.unreachable and error.reason == NOT_HTTP:
        return f"{address} does not speak HTTP; is it the TCP port? nsqlookupd's HTTP port is 4161 by default"
    return str(error)


def explain_while_read(producer: str, error: NodeError) -> str:
    """Say the same of an nsqd that answered when the batch was planned."""
    known = _reason(error)
    problem = "stopped answering" if error.unreachable else "gave no usable answer"
    return f"nsqd {producer} {known or f'{problem} while it was read'}: {_shown(error)}"


def explain_while_written(producer: str, error: NodeError) -> str:
    """Say the same of an nsqd to which rows are published."""
    known = _WHILE_WRITTEN.get(error.code)
    return f"nsqd {producer} {known}: {_shown(error)}" if known else explain(producer, error)


def _shown(error: NodeError) -> str:
    """The error; without the address if the node answered, because the sentence names the node."""
    return str(error) if error.unreachable else error.reason


def _reason(error: NodeError) -> str:
    if error.unreachable:
        if error.reason == NOT_HTTP:
            return "does not speak HTTP; is it the TCP port? nsqd's HTTP port is 4151 by default"
        # Texts of OpenSSL, and of http.client when the answer is TLS.
        if "certificate verify failed" in error.reason:
            return "has a certificate that is not trusted here (option tlsRootCaFile)"
        if "ssl" in error.reason.lower() or "tls" in error.reason.lower():
            return "does not speak TLS as it is asked to"
        return ""
    return _KNOWN.get(error.code, "")
