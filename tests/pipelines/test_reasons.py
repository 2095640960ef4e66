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


REFUSALS = [
    (refused(404, "NOT_FOUND"), "has no log that can be read by position: it is the nsqd written in Go, or"),
    (refused(401, "AUTH_REQUIRED"), "wants the AUTH secret (option authSecretFile): got response 401"),
    (refused(503, "CANNOT_READ"), "cannot read its disk: "),
    (refused(500, "WHATEVER"), "gave no usable answer: got response 500 Internal Server Error"),
    (unreachable(NOT_HTTP), "does not speak HTTP; is it the TCP port? nsqd's HTTP port is 4151 by default"),
    (unreachable("connection refused"), f'does not answer: Get "{URL}": connection refused'),
    (
        unreachable("[ssl: certificate_verify_failed] certificate verify failed: self-signed"),
        "has a certificate that is not trusted here (option tlsRootCaFile): ",
    ),
]


def test_refusal_of_write_speaks_of_writing():
    assert explain_while_written("n:1", refused(404, "NOT_FOUND")).startswith(
        "nsqd n:1 takes no headers and no dedup_id: it is the nsqd written in Go, or not an nsqd"
    )
    assert "publish to this topic" in explain_while_written("n:1", refused(403, "UNAUTHORIZED"))
    assert explain_while_written("n:1", refused(503, "CANNOT_READ")) == explain(
        "n:1", refused(503, "CANNOT_READ")
    )


@pytest.mark.parametrize(("error", "beginning"), REFUSALS)
def test_refusal_is_explained(error, beginning):
    assert explain("n:1", error).startswith(f"nsqd n:1 {beginning}")


def test_one_that_answered_before_stopped_answering():
    assert explain_while_read("n:1", unreachable("timed out after 10s")).startswith(
        "nsqd n:1 stopped answering while it was read: Get "
    )
    assert explain_while_read("n:1", refused(401, "AUTH_REQUIRED")).startswith(
        "nsqd n:1 wants the AUTH secret"
    )


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (refused(404, "NOT_FOUND"), "n:1 is not an nsqlookupd, it has no /lookup; is it an nsqd?"),
        (unreachable(NOT_HTTP), "n:1 does not speak HTTP; is it the TCP port?"),
        (unreachable("connection refused"), f'Get "{URL}": connection refused'),
    ],
)
def test_non_nsqlookupd_is_reported(error, sentence):
    assert explain_lookup("n:1", error).startswith(sentence)
