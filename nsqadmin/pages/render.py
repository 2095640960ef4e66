"""HTML replies: templates, security headers, and notes that survive one redirect."""

import base64
import binascii
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlencode

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nsqadmin.access.rights import is_open
from nsqadmin.access.roles import Role
from nsqadmin.changes.alerts import Alerts, key_text
from nsqadmin.changes.runner import ActionRunner
from nsqadmin.options import LiveOptions
from nsqadmin.pages import graphs
from nsqadmin.pages.static_files import StaticFiles
from nsqadmin.stats import present
from nsqadmin.stats.messages import WrittenNumber
from nsqclient.wire.version import NSQ_VERSION
from nsqcore.http.api import Request
from nsqcore.version import VERSION

_TEMPLATES: Final = Path(__file__).parent / "templates"
_NOTE_COOKIE: Final = "nsqadmin_note"
# Browsers store cookies of up to 4 KiB, including name and attributes.
_NOTE_LIMIT: Final = 3000
# A longer note retains so many characters of each sentence; this one stands for warnings left out.
_NOTE_TEXT: Final = 200
_MORE: Final = "more is in the log"

_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class PageNote:
    """The result of an action, shown once on the page that follows it."""

    text: str
    warnings: tuple[str, ...] = ()
    # Further facts after a success.
    details: tuple[str, ...] = ()


class Urls:
    """Addresses of pages; names are escaped, so that ``#ephemeral`` does not become a fragment."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    @property
    def index(self) -> str:
        return self._prefix or "/"

    def page(self, *segments: str, **query: str) -> str:
        path = self._prefix + "".join(f"/{_segment(one)}" for one in segments)
        given = {key: value for key, value in query.items() if value}
        return f"{path or '/'}?{urlencode(given)}" if given else path or "/"

    def topic(self, topic: str) -> str:
        return self.page("topics", topic)

    def channel(self, topic: str, channel: str) -> str:
        return self.page("topics", topic, channel)

    def node(self, address: str) -> str:
        return self.page("nodes", address)

    def action(
        self, action: str, topic: str = "", channel: str = "", node: str = "", back: str = "", key: str = ""
    ) -> str:
        """Return the address of the page where *action* is explained and confirmed."""
        return self.page("action", action=action, topic=topic, channel=channel, node=node, back=back, key=key)


def _segment(name: str) -> str:
    """Write *name* as a part of a path. Browsers drop parts that are one or two dots, even escaped ones."""
    return f"~{name}" if name in {".", ".."} else quote(name, safe=":[]")


def plain_segment(text: str) -> str:
    """Return the name that :func:`Urls.page` wrote; no name begins with a tilde."""
    return text.removeprefix("~")


class Here:
    """The address of the current page, with some of its arguments changed."""

    def __init__(self, target: str) -> None:
        self._path, _, query = target.partition("?")
        self._query = parse_qs(query)

    def at(self, **changes: str | int) -> str:
        """Return the address with *changes*; an empty value removes an argument."""
        query = {key: values[0] for key, values in self._query.items()} | {
            key: str(value) for key, value in changes.items()
        }
        text = urlencode({key: value for key, value in query.items() if value})
        return f"{self._path}?{text}" if text else self._path

    def without(self, *names: str) -> list[tuple[str, str]]:
        """Return all arguments except those that begin with one of *names*, for a form that sets these."""
        return [(key, values[0]) for key, values in self._query.items() if not key.startswith(names)]

    @property
    def frame(self) -> str:
        """The time frame of Graphite's graphs."""
        return self._query.get("t", [""])[0]

    def others(self, name: str) -> list[tuple[str, str]]:
        """Return all arguments except *name*, for a form that sets it."""
        return [(key, values[0]) for key, values in self._query.items() if key != name]


class Renderer:
    """Renders pages from templates."""

    def __init__(
        self, options: LiveOptions, runner: ActionRunner, static: StaticFiles, alerts: Alerts
    ) -> None:
        prefix = options.current.prefix
        self.urls = Urls(prefix)
        self._options = options
        self._runner = runner
        self._alerts = alerts
        self._cookie_path = prefix or "/"
        # Only pictures of Graphite may come from another origin.
        place = graphs.origin(options.current)
        pictures = f"; img-src 'self' {place}" if place else ""
        self._headers = {
            **_HEADERS,
            "Content-Security-Policy": _HEADERS["Content-Security-Policy"] + pictures,
        }
        self._environment = Environment(
            loader=FileSystemLoader(_TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            count=present.count,
            counted=present.counted,
            per_second=present.per_second,
            duration=present.duration,
            percentile=present.percentile,
            size=present.size,
            clock=present.clock,
            moment=lambda at_s: _time(at_s, present.moment(at_s)),
            at=lambda at_s: _time(at_s, present.time_text(at_s, time.time())),
            at_text=lambda at_s: present.time_text(at_s, time.time()),
            stamp=present.stamp,
        )
        self._environment.globals.update(
            urls=self.urls,
            graphs=lambda topic, channel, frame: graphs.graphs_of(options.current, topic, channel, frame),
            frame_of=graphs.frame_of,
            frames=graphs.FRAMES if options.current.graphite_url else (),
            plural=present.plural,
            is_number=lambda value: isinstance(value, (WrittenNumber, int, float)),
            version=f"{NSQ_VERSION} (nsq-cluster {VERSION})",
            has_static=static.has,
            static=lambda name: f"{prefix}/static/{name}?v={static.version}",
        )

    def page(
        self,
        request: Request,
        template: str,
        *,
        status: int = 200,
        warnings: Sequence[str] = (),
        at_s: float | None = None,
        **context: Any,
    ) -> web.Response:
        """Render *template* with *context* and the values that every page shows.

        *warnings* are sentences; *at_s* is the time of the statistics, by default now.
        """
        options = self._options.current
        note = _read_note(request)
        text = self._environment.get_template(template).render(
            context,
            this=Here(request.target),
            warnings=list(dict.fromkeys(warnings)),
            note=note,
            statistics_at=time.time() if at_s is None else at_s,
            may=lambda action, topic="": self._runner.may(request, action, topic),
            may_any=lambda action, topics: any(self._runner.may(request, action, one) for one in topics),
            may_change=self._runner.rights.may_somewhere(request, Role.OPERATOR),
            user=self._runner.rights.person(request).name if not is_open(options) else "",
            role=self._runner.rights.role(request),
            signs_in=self._runner.rights.signs_in,
            paused_by=self._runner.audit.paused_by,
            audit_problem=self._runner.audit.problem,
            muted=self._alerts.muted_until,
            problem_key=lambda card: key_text(card.key),
            lookupd_mode=bool(options.nsqlookupd_http_addresses),
        )
        reply = web.Response(body=text.encode("utf-8", "replace"), status=status, headers=self._headers)
        if note is not None:
            reply.del_cookie(_NOTE_COOKIE, path=self._cookie_path)
        return reply

    def redirect(self, location: str, note: PageNote) -> web.Response:
        """Redirect the browser to *location*, where it shows *note*."""
        reply = web.Response(status=303, headers={"Location": location, "Cache-Control": "no-store"})
        reply.set_cookie(
            _NOTE_COOKIE,
            _write_note(note),
            path=self._cookie_path,
            max_age=60,
            httponly=True,
            samesite="Strict",
        )
        return reply


def _time(at_s: float, text: str) -> Markup:
    """Write a time so that a script can show it as local time."""
    return Markup('<time datetime="{}">{}</time>').format(present.stamp(at_s), text)


def _write_note(note: PageNote) -> str:
    """Encode *note* as a cookie. Text that does not fit is left out, but never the existence of warnings."""
    cookie = _cookie(note.text, note.details, note.warnings)
    details, warnings = [*map(_short, note.details)], [*map(_short, note.warnings)]
    count = max(len(details), len(warnings))
    while len(cookie) > _NOTE_LIMIT and count >= 0:
        shown = warnings if count >= len(warnings) else [*warnings[:count], _MORE]
        cookie = _cookie(_short(note.text), details[:count], shown)
        count = count // 2 if count else -1
    return cookie


def _cookie(text: str, details: Sequence[str], warnings: Sequence[str]) -> str:
    note = json.dumps([text, details, warnings], ensure_ascii=False).encode("utf-8", "replace")
    return base64.urlsafe_b64encode(note).decode()


def _short(text: str) -> str:
    return text if len(text) <= _NOTE_TEXT else f"{text[: _NOTE_TEXT - 1]}…"


def _read_note(request: Request) -> PageNote | None:
    cookie = request.raw.cookies.get(_NOTE_COOKIE)
    if not cookie:
        return None
    try:
        text, details, warnings = json.loads(base64.urlsafe_b64decode(cookie))
        return PageNote(str(text), tuple(map(str, warnings)), tuple(map(str, details)))
    except (ValueError, TypeError, RecursionError, binascii.Error):
        return None
