"""Finds the handler of a request, or the answer to a request without one. Pure."""

import posixpath
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

Handler: TypeAlias = Callable[[Any], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One line of a route table. ``:name`` in the pattern stands for one path segment.

    The pattern ``*`` stands for every path that no other route has.

    ``logged=False`` keeps hot paths out of the access log. With ``head=True`` the path also accepts HEAD, as
    probes send it; the server leaves the body out.
    """

    method: str
    pattern: str
    handler: Handler
    logged: bool = True
    head: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    route: Route
    params: dict[str, str]


@dataclass(frozen=True, slots=True)
class Redirect:
    """The right path is *path*: the request had an extra or doubled slash, or the wrong letter case."""

    path: str
    status: int


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """The path exists for other methods, which ``allow`` lists."""

    allow: str


NO_PARAMS: Final[dict[str, str]] = {}


class Router:
    """A route table. A path without parameters is found by one dict lookup in ``exact``."""

    def __init__(self, routes: Iterable[Route], base_path: str = "/") -> None:
        self.base_path = "" if base_path == "/" else base_path
        self.routes = [one for route in routes for one in _with_head(route)]
        self.exact: dict[tuple[str, str], Route] = {}
        self._patterns: list[tuple[list[str], Route]] = []
        self._others: dict[str, Route] = {}
        for route in self.routes:
            if route.pattern == "*":
                self._others[route.method] = route
                continue
            # The index of a base path has two spellings, /nsq and /nsq/: a proxy may add or take the slash.
            if self.base_path and route.pattern == "/":
                self.exact[route.method, f"{self.base_path}/"] = route
            pattern = (self.base_path + route.pattern.rstrip("/")) or "/"
            if ":" in pattern:
                self._patterns.append((pattern.split("/"), route))
            else:
                self.exact[route.method, pattern] = route

    def find(self, method: str, raw_path: str) -> Match | Redirect | NotAllowed | None:
        """Find the answer for a path as in the request line, without the query; None means not found."""
        path = unquote(raw_path)
        match = self._match(method, path)
        if match is not None:
            return match
        fixed = self._fixed(method, path)
        if fixed is not None:
            return Redirect(quote(fixed, safe="/:@!$&'()*+,;=~"), 301 if method == "GET" else 307)
        methods = {route.method for (_, pattern), route in self.exact.items() if pattern == path}
        segments = path.split("/")
        methods |= {
            route.method for pattern, route in self._patterns if _params(pattern, segments) is not None
        }
        if methods:
            return NotAllowed(", ".join(sorted(methods | {"OPTIONS"})))
        other = self._others.get(method)
        return Match(other, NO_PARAMS) if other is not None else None

    def _match(self, method: str, path: str) -> Match | None:
        route = self.exact.get((method, path))
        if route is not None:
            return Match(route, NO_PARAMS)
        segments = path.split("/")
        for pattern, route in self._patterns:
            if route.method == method:
                params = _params(pattern, segments)
                if params is not None:
                    return Match(route, params)
        return None

    def _fixed(self, method: str, path: str) -> str | None:
        """Find the canonical spelling of *path* for which this method has a handler."""
        clean = posixpath.normpath("/" + path.lstrip("/"))
        if clean != path and self._match(method, clean):
            return clean
        lowered = clean.lower()
        for known_method, known in self.exact:
            if known_method == method and known.lower() == lowered and known != path:
                return known
        segments = clean.split("/")
        for pattern, route in self._patterns:
            if route.method == method and len(pattern) == len(segments):
                fixed = "/".join(
                    have if want.startswith(":") else want
                    for want, have in zip(pattern, segments, strict=True)
                )
                if (
                    fixed != path
                    and fixed.lower() == lowered
                    and _params(pattern, fixed.split("/")) is not None
                ):
                    return fixed
        return None


def _with_head(route: Route) -> list[Route]:
    return [route, replace(route, method="HEAD", head=False)] if route.head else [route]


def _params(pattern: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(segments):
        return None
    params: dict[str, str] = {}
    for want, have in zip(pattern, segments, strict=True):
        if want[:1] == ":":
            if not have:
                return None
            params[want[1:]] = have
        elif want != have:
            return None
    return params
