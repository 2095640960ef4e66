from nsqclient.wire.node_error import NodeError

URL = "http://127.0.0.1:4151/stats"


def test_an_unreachable_node_is_told_with_verb_url_and_reason():
    error = NodeError("GET", URL, "127.0.0.1:4151", "connect: connection refused")

    assert str(error) == 'Get "http://127.0.0.1:4151/stats": connect: connection refused'
    assert error.unreachable


def test_a_refusal_quotes_status_and_body_and_knows_the_code():
    error = NodeError.from_status("POST", URL, "127.0.0.1:4151", 404, b'{"message":"TOPIC_NOT_FOUND"}')

    assert str(error) == 'got response 404 Not Found "{\\"message\\":\\"TOPIC_NOT_FOUND\\"}"'
    assert error.code == "TOPIC_NOT_FOUND"
    assert not error.unreachable


def test_a_refusal_without_json_has_no_code():
    assert NodeError.from_status("GET", URL, "x", 500, b"oops").code == ""
    assert NodeError.from_status("GET", URL, "x", 500, b"[]").code == ""
    assert NodeError.from_status("GET", URL, "x", 500, b"[" * 100_000).code == ""
    assert str(NodeError.from_status("GET", URL, "x", 799, b"\xff")) == 'got response 799 "\ufffd"'
