"""The media types of the description are those of the answers."""

from itertools import product

from nsqd.server.http.openapi import OPERATIONS
from tests.support.site import ask

# Every required argument, and what chooses the form of an answer.
ARGUMENTS = ("topic=t&channel=c&start={first}&end={first}", "topic=t&format=json", "topic=t&format=ndjson")


def test_answers_have_their_described_media_types(cluster):
    nsqd = cluster.nsqd()
    nsqd.create("t", "c")
    first = nsqd.get("/log/bounds?topic=t")["first"]
    for (method, pattern), operation in OPERATIONS.items():
        if method != "GET":
            continue
        paths = [pattern.replace(":opt", opt) for opt in ("broadcast_address", "max_msg_size")]
        answers = [
            ask(nsqd, "GET", f"{path}?{arguments.format(first=first)}")
            for path, arguments in product(paths, ARGUMENTS)
        ]
        kinds = {
            answer.headers["Content-Type"].partition(";")[0] for answer in answers if answer.status == 200
        }

        assert kinds == set(operation.answer.split()), pattern


def test_refused_probe_has_its_described_media_type(cluster):
    nsqd = cluster.nsqd()
    nsqd.post("/drain")
    answer = ask(nsqd, "GET", "/ready")

    assert answer.status == 503
    assert answer.headers["Content-Type"].partition(";")[0] == OPERATIONS["GET", "/ready"].refused_in
