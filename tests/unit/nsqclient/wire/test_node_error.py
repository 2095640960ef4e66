from nsqclient.wire.node_error import NodeError

URL = "http://127.0.0.1:4151/stats"


def test_unreachable_node_is_told_with_verb_url_and_reason():
    error = NodeError("GET", URL, "127.0.0.1:4151", "connect: connection refused")

    assert str(error) == 'Get "http://127.0.0.1:4151/stats": connect: connection refused'
    assert error.unreachable


def test_refusal_quotes_status_and_body_and_knows_code():
    error = NodeError.from_status("POST", URL, "127.0.0.1:4151", 404, b'{"message":"TOPIC_NOT_FOUND"}')

    said = 'got response 404 Not Found "{\\"message\\":\\"TOPIC_NOT_FOUND\\"}"'
    assert str(error) == f'Post "{URL}": {said}'
    assert error.code == "TOPIC_NOT_FOUND"
    assert not error.unreachable


def test_refusal_without_json_has_no_code():
    assert NodeError.from_status("GET", URL, "x", 500, b"oops").code == ""
    assert NodeError.from_status("GET", URL, "x", 500, b"[]").code == ""
    assert NodeError.from_status("GET", URL, "x", 500, b"[" * 100_000).code == ""
    assert NodeError.from_status("GET", URL, "x", 799, b"\xff").reason == 'got response 799 "\ufffd"'


def test_change_may_happen_if_request_went_out_and_no_answer_came():
    def error(verb, **given):
        return NodeError(verb, URL, "x", "timed out after 5s", **given)

    assert error("POST", sent=True).may_happen
    assert str(error("POST", sent=True)).endswith("the outcome is unknown, it may still happen")
    assert not error("POST").may_happen
    assert not error("GET", sent=True).may_happen
    assert not error("POST", sent=True, status=500).may_happen
