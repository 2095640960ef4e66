"""A stand-in for Graphite behind nsqadmin."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.support.site import ask

NSQD = "--nsqd-http-address=127.0.0.1:4151"


@pytest.fixture
def graphite():
    """A server that answers ``answer`` and keeps path, user and forwarded address of each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.seen.append((self.path, self.headers["Authorization"], self.headers["X-Forwarded-For"]))
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.send_header("Set-Cookie", "secret=1")
            self.end_headers()
            self.wfile.write(server.answer)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.seen = []
    server.answer = b"picture"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def rate(admin, query):
    answer = ask(admin, "GET", f"/api/graphite?{query}")
    return answer.status, json.loads(answer.body)


def test_rate_is_the_last_whole_interval_divided_by_its_seconds(cluster, graphite):
    admin = cluster.nsqadmin(NSQD, f"--graphite-url=http://127.0.0.1:{graphite.server_port}")
    graphite.answer = b'[{"target":"x","datapoints":[[120,1],[130,2]]}]'

    assert rate(admin, "metric=rate&target=sum(a.b)") == (200, {"rate": "2.00"})
    assert graphite.seen[0][0] == "/render?format=json&from=-120sec&target=sum%28a.b%29&until=-60sec"
    graphite.answer = b'[{"datapoints":[[-1,1]]}]'
    assert rate(admin, "metric=rate&target=x") == (200, {"rate": "N/A"})
    for useless in (b"[]", b"no json", b'[{"datapoints":[[null,1]]}]'):
        graphite.answer = useless
        assert rate(admin, "metric=rate&target=x") == (500, {"message": "INTERNAL_ERROR"})
    assert rate(admin, "metric=depth&target=x") == (400, {"message": "INVALID_ARG_METRIC"})
    assert rate(admin, "metric=rate") == (400, {"message": "INVALID_ARG_TARGET"})


def test_proxy_passes_query_and_picture_on_and_no_page(cluster, graphite):
    # Characters that an address cannot have are written as %XX.
    url = f"http://bob:s%65cret@127.0.0.1:{graphite.server_port}/sub"
    admin = cluster.nsqadmin(NSQD, f"--graphite-url={url}", "--proxy-graphite", "--base-path=/nsq")

    answer = ask(admin, "GET", "/nsq/render?target=a%2Bb&width=800")

    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (200, b"picture", "image/png")
    assert answer.headers["Set-Cookie"] is None
    assert graphite.seen == [("/sub/render?target=a%2Bb&width=800", "Basic Ym9iOnNlY3JldA==", "127.0.0.1")]
    graphite.answer = b"<script>alert(1)</script>"
    for query, content_type in {
        "target=x": "image/png",
        "target=x&format=png": "image/png",
        "target=x&format=json&jsonp=alert": "application/json",
        "target=x&format=csv": "text/plain; charset=utf-8",
    }.items():
        headers = ask(admin, "GET", f"/nsq/render?{query}").headers
        assert headers["Content-Type"] == content_type
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"] == "default-src 'none'; sandbox"


def test_graphite_proxy_is_off_by_default(small_admin):
    assert ask(small_admin, "GET", "/render").status == 404
