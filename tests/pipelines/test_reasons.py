"""Each refusal of an nsqd is explained in a sentence."""

import json

import pytest

from nsqclient.wire.node_error import NodeError
from pyspark_nsq.source.http import NOT_HTTP
from pyspark_nsq.source.reasons import explain, explain_lookup, explain_while_read, explain_while_written

URL = "http://n:1/log/range"


def refused(status, code):
    return NodeError.from_status("GET", URL, "n:1", status, json.dumps({"message": code}).encode())


def unreachable(reason):
    return NodeError("GET", URL, "n:1", reason)


IN_GO = "has no log that can be read by position: it is the nsqd written in Go, or"
NOT_NSQD = "does not speak HTTP; is it the TCP port? nsqd's HTTP port is 4151 by default"
DISK = refused(503, "CANNOT_READ")
DOWN = unreachable("connection refused")
UNTRUSTED = unreachable("[ssl: certificate_verify_failed] certificate verify failed: self-signed")


@pytest.mark.parametrize(
    ("explained", "beginning"),
    [
        (explain("n:1", refused(404, "NOT_FOUND")), f"nsqd n:1 {IN_GO}"),
        (
            explain("n:1", refused(500, "WHATEVER")),
            "nsqd n:1 gave no usable answer: got response 500",
        ),
        (explain("n:1", DISK), "nsqd n:1 cannot read its disk: "),
        (explain("n:1", unreachable(NOT_HTTP)), f"nsqd n:1 {NOT_NSQD}"),
        (explain("n:1", DOWN), f'nsqd n:1 does not answer: Get "{URL}": connection refused'),
        (
            explain(
                "n:1", unreachable("[ssl: certificate_verify_failed] certificate verify failed: self-signed")
            ),
            "nsqd n:1 has a certificate that is not trusted here (option tlsRootCaFile): ",
        ),
        (explain_while_read("n:1", DOWN), "nsqd n:1 stopped answering while it was read: Get "),
        (
            explain_while_read("n:1", refused(500, "X")),
            "nsqd n:1 gave no usable answer while it was read",
        ),
        (
            explain_while_read("n:1", refused(401, "AUTH_REQUIRED")),
            "nsqd n:1 wants the AUTH secret (option authSecretFile): got response 401",
        ),
        (
            explain_while_written("n:1", refused(404, "NOT_FOUND")),
            "nsqd n:1 takes no headers and no dedup_id: it is the nsqd written in Go, or not an nsqd",
        ),
        (
            explain_while_written("n:1", refused(403, "UNAUTHORIZED")),
            "nsqd n:1 does not let the AUTH secret of authSecretFile publish to this topic",
        ),
        (explain_while_written("n:1", DISK), explain("n:1", DISK)),
        (
            explain_lookup("n:1", refused(404, "NOT_FOUND")),
            "n:1 is not an nsqlookupd, it has no /lookup; is it an nsqd?",
        ),
        (explain_lookup("n:1", unreachable(NOT_HTTP)), "n:1 does not speak HTTP; is it the TCP port?"),
        (explain_lookup("n:1", DOWN), f'Get "{URL}": connection refused'),
    ],
)
def test_refusal_is_explained(explained, beginning):
    assert explained.startswith(beginning)
