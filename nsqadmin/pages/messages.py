"""The pages of messages: a list over all nsqds, one message in full, and its body as a file."""

import base64
import binascii
import json
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from aiohttp import web

from nsqadmin.collecting.answers import UnknownError
from nsqadmin.collecting.messages import BadSearchError, MessageList, MessageReader, MessageSearch
from nsqadmin.pages.replies import Pages, refuse_embedding
from nsqadmin.stats.messages import FoundMessage, hex_lines
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND, NodeError
from nsqcore.http.api import ApiError, Request, Response, error_reply, json_bytes, json_bytes_reply, json_text
from nsqcore.http.router import Route

_DEAD: Final = "dead"
_POSITION: Final = re.compile(r"[0-9]{1,19}(\.[0-9]{1,18})?")
_ID: Final = re.compile(r"[0-9a-f]{16}")
# The page of a message shows at most so many lines of bytes, and so many characters.
_MAX_LINES: Final = 4096
_MAX_TEXT: Final = 1 << 18
_MAX_POSITIONS: Final = 1 << 16
_ARGUMENTS: Final = ("topic", "channel", "state", "order", "start", "contains", "json", "node")


class MessagePages(Pages):
    """``/messages`` and the paths below it. None of them changes a message."""

    @property
    def _reader(self) -> MessageReader:
        return self._runner.scene.commands.reader

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/messages", self.explaining(self.show)),
            Route("GET", "/messages/one", self.explaining(self.show_one)),
            Route("GET", "/messages/body", self.explaining(self.download)),
        ]

    # -- the list -------------------------------------------------------------------

    async def show(self, request: Request) -> Response:
        refuse_embedding(request)
        query = request.query
        if query.get("state") == _DEAD:
            return await self._to_dead_letters(request)
        search = search_of(query)
        may_read = self._runner.may(request, "read", search.topic)
        if search.reads_bodies and not may_read:
            raise ApiError(403, "FORBIDDEN")
        problem, found = "", MessageList((), {})
        errors: tuple[NodeError, ...] = ()
        try:
            answer = await self._reader.page(search)
        except BadSearchError as error:
            problem = str(error)
        else:
            found, errors = answer.value, answer.errors
        return await self._show(request, search, found, errors, problem)

    async def _show(
        self,
        request: Request,
        search: MessageSearch,
        found: MessageList,
        errors: Sequence[NodeError],
        problem: str = "",
    ) -> Response:
        query = request.query
        may_read = self._runner.may(request, "read", search.topic)
        messages = [FoundMessage(one.node, one.listed, may_read) for one in found.messages]
        warnings = self.sentences(errors)
        if query.get("format") == "json":
            if problem:
                return error_reply(400, f"INVALID_SEARCH: {problem}")
            shown = [one.to_json() for one in messages]
            # Bodies are written unchanged. Errors of nodes are written by json_text only.
            said = msgspec.Raw(json_text(warnings).encode("utf-8", "replace"))
            reply = {"messages": shown, "onward": encode_positions(found.onward), "warnings": said}
            return json_bytes_reply(json_bytes(reply))
        view = (await self._cluster.queues.topic_view(search.topic)).value
        counts = {one.channel_name: one for one in view.total.channels}
        return self._render.page(
            request,
            "messages.html",
            status=400 if problem else 200,
            warnings=warnings,
            at_s=time.time(),
            search=search,
            order="newest" if search.newest else "oldest",
            problem=problem,
            messages=messages,
            found=found,
            onward=encode_positions(found.onward),
            channels=sorted(counts),
            record=counts.get(search.channel),
            nodes=sorted(view.shares),
            may_read=may_read,
            # A topic whose name does not end in .dead may also hold dead letters: their headers tell.
            dead=search.topic.endswith(".dead") or any(one.origin for one in messages),
            given=_given(query),
            tails=bool(query.get("tail")) and not search.positions,
            trace=self._trace,
        )

    async def _to_dead_letters(self, request: Request) -> Response:
        """Redirect to the topic of a channel's dead letters, which the policy in force names."""
        search = search_of({**request.query, "state": ""})
        if not search.channel:
            raise UnknownError(CHANNEL_NOT_FOUND)
        target = f"{search.topic}.{search.channel}.dead".replace("#ephemeral", "")
        for node in (await self._reader.holders(search.topic)).value:
            try:
                policies = await self._cluster.nsqd(node).policies(topic=search.topic, channel=search.channel)
            except NodeError:
                # Another node may have policies; NSQ's own nsqd has none.
                continue
            definition = (policies.in_force or {}).get("definition")
            if isinstance(definition, Mapping):
                target = str(definition.get("dead_letter_topic") or target)
            break
        try:
            await self._reader.holders(target)
        except UnknownError:
            # There are none yet: the channel keeps its tabs and its list is empty.
            return await self._show(request, replace(search, state=_DEAD), MessageList((), {}), ())
        place = self._urls.page("messages", topic=target)
        return web.Response(status=303, headers={"Location": place})

    # -- one message ------------------------------------------------------------------

    async def _one(self, request: Request, *, exact: bool) -> tuple[MessageSearch, FoundMessage]:
        refuse_embedding(request)
        search = search_of(request.query)
        message_id = request.query.get("id", "")
        if not _ID.fullmatch(message_id):
            raise ApiError(400, "INVALID_ARG_ID")
        found = await self._reader.one(search.topic, search.channel, search.node, message_id, exact=exact)
        return search, found

    async def show_one(self, request: Request) -> Response:
        topic = request.query.get("topic", "")
        may_read = self._runner.may(request, "read", topic)
        shown_as = request.query.get("as", "")
        search, found = await self._one(request, exact=shown_as == "hex" and may_read)
        message = FoundMessage(found.node, found.listed, may_read)
        if request.query.get("format") == "json":
            return json_bytes_reply(json_bytes(message.to_json()))
        if not shown_as:
            shown_as = "json" if message.tree is not None else "text" if message.text is not None else "hex"
        before, after = await self._reader.neighbours(search, message)
        lines: list[str] = []
        if shown_as == "hex":
            every = hex_lines(message.content)
            lines = [line for line, _ in zip(every, range(_MAX_LINES), strict=False)]
        return self._render.page(
            request,
            "message.html",
            at_s=time.time(),
            search=search,
            message=message,
            shown_as=shown_as,
            lines=lines,
            text=(message.text or "")[:_MAX_TEXT],
            cut=len(message.content) > (_MAX_LINES * 16 if shown_as == "hex" else _MAX_TEXT),
            trace=self._trace(message),
            header_lines="\n".join(f"{name}: {value}" for name, value in message.headers.items()),
            may_read=may_read,
            before=before,
            after=after,
        )

    async def download(self, request: Request) -> Response:
        """Reply with the body exactly as published, as a file to download and never as a page."""
        if not self._runner.may(request, "read", request.query.get("topic", "")):
            raise ApiError(403, "FORBIDDEN")
        _, found = await self._one(request, exact=True)
        return web.Response(
            body=found.content,
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Disposition": f'attachment; filename="{found.listed.id}.bin"',
            },
        )

    def _trace(self, message: FoundMessage) -> str:
        pattern = self._options().trace_url
        return message.trace(pattern) if pattern else ""


def search_of(query: Mapping[str, str]) -> MessageSearch:
    """Read a search and the places where its lists continue. Raises UnknownError for an invalid name."""
    return replace(MessageSearch.of(query), positions=decode_positions(query.get("go", "")))


def encode_positions(places: Mapping[str, str]) -> str:
    """Encode the places where the nodes' lists continue as one word for an address."""
    if not places:
        return ""
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(places).encode(), 9)).decode()


def decode_positions(word: str) -> dict[str, str]:
    """Decode a word of :func:`encode_positions`; an invalid one gives no places."""
    if not word:
        return {}
    try:
        text = zlib.decompressobj().decompress(base64.urlsafe_b64decode(word), _MAX_POSITIONS)
        places = json.loads(text)
    except (ValueError, binascii.Error, zlib.error, RecursionError):
        return {}
    if not isinstance(places, dict):
        return {}
    return {
        node: place for node, place in places.items() if isinstance(place, str) and _POSITION.fullmatch(place)
    }


def _given(query: Mapping[str, str]) -> dict[str, Any]:
    return {key: query[key] for key in _ARGUMENTS if query.get(key)}
