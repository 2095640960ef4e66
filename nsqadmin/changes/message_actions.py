"""Actions on messages: handling, sending back, seeking, publishing."""

import asyncio
from collections import Counter
from typing import Any, Final

from nsqadmin.access.roles import Role
from nsqadmin.changes import effects
from nsqadmin.changes.action import (
    Action,
    Do,
    Explain,
    Fields,
    Form,
    Question,
    Scene,
    Target,
    unexplained,
)
from nsqadmin.changes.commands import ActionResult, Selection
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.messages import BadSearchError, MessageSearch, SeekPreview
from nsqadmin.stats.present import failure
from nsqclient.wire.durations import MILLISECOND, parse_duration
from nsqclient.wire.node_error import CHANNEL_NOT_FOUND

# The number of subjects of a selection that are processed at a time.
_CONCURRENCY: Final = 4


# -- messages -------------------------------------------------------------------------------


def _selection(target: Target, fields: Fields, *, delayed: bool = False) -> Selection:
    """Read the selection of messages. Raises BadSearchError if they are a list that nodes cannot pick."""
    search = MessageSearch.of({**fields, "topic": target.topic, "channel": target.channel})
    if not (fields.get("id") or search.can_select_all):
        way_out = "leave From empty" if search.by_due_time else "list the oldest first, or leave From empty"
        raise BadSearchError(f"a list with From cannot be taken whole: {way_out}")
    return Selection(search, fields.get("id", ""), _milliseconds(fields) if delayed else 0)


async def _handled(scene: Scene, name: str, target: Target, fields: Fields, *, dry: bool) -> ActionResult:
    which = _selection(target, fields, delayed=name == "requeue")
    if name == "send_back":
        return await scene.commands.send_back(which, dry=dry)
    if not target.channel:
        raise UnknownError(CHANNEL_NOT_FOUND)
    return await scene.commands.handle(name, which, dry=dry)


def on_messages(name: str, verb: str, done: str, **more: Any) -> Action:
    async def do(scene: Scene, target: Target, fields: Fields) -> ActionResult:
        return await _handled(scene, name, target, fields, dry=False)

    async def explain(scene: Scene, form: Form) -> Question:
        try:
            dry = await _handled(scene, name, form.one, form.fields, dry=True)
        except UpstreamError as error:
            return unexplained(error)
        return Question(effects.message_effects(name, done, dry, one=bool(form.fields.get("id"))))

    more = {"audit": f"{name}_messages", "role": Role.OPERATOR, "back": "messages", **more}
    more |= {"title": ("{verb} {messages} ", "{message}", "{of_place}?"), "button": "{verb}{all}"}
    return Action(name=name, verb=verb, done=done, do=do, effects=explain, note="{result}", **more)


async def seek(scene: Scene, target: Target, fields: Fields) -> ActionResult:
    to, node = fields.get("to", ""), fields.get("node", "")
    if not target.channel:
        raise UnknownError(CHANNEL_NOT_FOUND)
    # A position that no node understands is refused before any change.
    await scene.commands.reader.seek_preview(target.topic, target.channel, to, node)
    return await scene.commands.seek(target.topic, target.channel, to, node)


async def explain_seek(scene: Scene, form: Form) -> Question:
    """Describe the backlog after the position. Raises BadSearchError if no node understands it."""
    to, node = form.fields.get("to", ""), form.fields.get("node", "")
    if not to:
        return Question()
    gate = asyncio.Semaphore(_CONCURRENCY)
    previews: list[SeekPreview] = []
    backlogs: Counter[str] = Counter()
    failed: list[str] = []

    async def look(target: Target) -> None:
        async with gate:
            try:
                if not target.channel:
                    raise UnknownError(CHANNEL_NOT_FOUND)
                found = await scene.commands.reader.seek_preview(target.topic, target.channel, to, node)
                view = (await scene.cluster.queues.topic_view(target.topic, 0.0)).value
            except UnknownError:
                if not form.fields.get("pick"):
                    raise
                failed.append(f"{target.place} is not there any more")
                return
            except UpstreamError as error:
                failed.extend(f"{target.place}: {failure(one, 'nsqd')}" for one in error.errors)
                return
        previews.extend(found.value)
        failed.extend(failure(one, "nsqd") for one in found.errors)
        for address, share in view.shares.items():
            backlogs[address] += sum(
                one.unfinished for one in share[0].channels if one.channel_name == target.channel
            )

    await asyncio.gather(*map(look, form.targets))
    silent = {node for one in form.targets for node in scene.cluster.queues.silent_holders(one.topic)}
    about = effects.seek_effects(previews, backlogs, failed)
    return Question([*about, *effects.silent_effects(sorted(silent))], display=to)


async def publish(scene: Scene, target: Target, fields: Fields) -> ActionResult:
    content = body_of(fields)
    if not content:
        raise BadSearchError("a message needs a body")
    return await scene.commands.publish(
        target.topic,
        fields.get("node", ""),
        content,
        _headers(fields.get("headers", "")),
        _milliseconds(fields),
    )


def body_of(fields: Fields) -> bytes:
    """Return the body of a message to publish: browsers end the lines of a form with CR LF."""
    return fields.get("body", "").replace("\r\n", "\n").encode()


def _milliseconds(fields: Fields) -> int:
    """Read the delay of a message in milliseconds. Raises ValueError with a sentence if it is none."""
    text = fields.get("defer", "").strip()
    if not text:
        return 0
    try:
        found = parse_duration(text) // MILLISECOND
    except ValueError:
        raise ValueError(f"{text} is no time such as 90s or 1h30m") from None
    if found < 0:
        raise ValueError("a delay cannot be negative")
    return found


def _headers(text: str) -> dict[str, str]:
    """Read lines ``name: value``. Raises ValueError with a sentence if a line is none."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"{line[:60]} is no header: write NAME: VALUE")
        found[name.strip()] = value.strip()
    return found


def publishing(name: str, verb: str, done: str, do: Do, about: Explain, **more: Any) -> Action:
    more |= {"back": "messages", "role": Role.OPERATOR, "button": "{verb}", "note": "{result}"}
    return Action(name=name, verb=verb, done=done, do=do, effects=about, **more)
