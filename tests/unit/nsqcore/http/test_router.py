import pytest

from nsqcore.http.router import Match, NotAllowed, Redirect, Route, Router


async def handler(_):
    raise AssertionError("the router only finds handlers")


@pytest.fixture
def router():
    return Router(
        [
            Route("GET", "/topics", handler),
            Route("GET", "/", handler),
            Route("POST", "/topic/create", handler),
            Route("GET", "/config/:opt", handler),
            Route("PUT", "/config/:opt", handler),
            Route("GET", "/topics/:topic/:channel", handler),
        ]
    )


def found(router, method, path):
    match = router.find(method, path)
    return (match.route.pattern, match.params) if isinstance(match, Match) else match


def test_plain_path_is_found(router):
    assert found(router, "GET", "/topics") == ("/topics", {})
    assert found(router, "GET", "/") == ("/", {})


def test_segments_with_name_are_handed_over_decoded(router):
    assert found(router, "PUT", "/config/log_level") == ("/config/:opt", {"opt": "log_level"})
    assert found(router, "GET", "/topics/a%23ephemeral/b%20c") == (
        "/topics/:topic/:channel",
        {"topic": "a#ephemeral", "channel": "b c"},
    )


def test_encoded_slash_splits_segment(router):
    assert found(router, "GET", "/topics/a%2Fb") == (
        "/topics/:topic/:channel",
        {"topic": "a", "channel": "b"},
    )


@pytest.mark.parametrize("path", ["/nope", "/topics/a", "/config", "/config/a/b", "/topics/a/b/c", "*"])
def test_unknown_path_is_not_found(router, path):
    assert found(router, "GET", path) is None


def test_known_path_tells_its_methods(router):
    assert found(router, "POST", "/topics") == NotAllowed("GET, OPTIONS")
    assert found(router, "HEAD", "/topics") == NotAllowed("GET, OPTIONS")
    assert found(router, "GET", "/topic/create") == NotAllowed("OPTIONS, POST")
    assert found(router, "OPTIONS", "/config/x") == NotAllowed("GET, OPTIONS, PUT")


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/topics/", "/topics"),
        ("//topics", "/topics"),
        ("/Topics", "/topics"),
        ("/x/../topics", "/topics"),
        ("/config/a/", "/config/a"),
        ("/CONFIG/Log_Level", "/config/Log_Level"),
        ("/topics/a%20b/c/", "/topics/a%20b/c"),
    ],
)
def test_path_in_other_spelling_is_redirected(router, path, right):
    assert found(router, "GET", path) == Redirect(right, 301)


def test_redirected_post_keeps_its_method(router):
    assert found(router, "POST", "/topic/create/") == Redirect("/topic/create", 307)


def test_redirect_needs_handler_for_method(router):
    assert found(router, "POST", "/topics/") is None


def test_base_path_prefixes_all_routes():
    router = Router([Route("GET", "/", handler), Route("GET", "/ping", handler)], "/nsq")

    assert found(router, "GET", "/nsq") == ("/", {})
    assert found(router, "GET", "/nsq/ping") == ("/ping", {})
    assert found(router, "GET", "/nsq/") == ("/", {})
    assert found(router, "GET", "/ping") is None
    assert found(router, "GET", "/") is None


def test_route_for_all_other_paths_leaves_known_paths_alone():
    router = Router(
        [Route("GET", "/ping", handler), Route("POST", "/pub", handler), Route("GET", "*", handler)]
    )

    assert found(router, "GET", "/nosuch/at/all") == ("*", {})
    assert found(router, "GET", "/ping/") == Redirect("/ping", 301)
    assert found(router, "GET", "/pub") == NotAllowed("OPTIONS, POST")
    assert found(router, "POST", "/nosuch") is None
