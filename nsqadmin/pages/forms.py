"""``/action``: every action is explained with its effects, confirmed, carried out and reported here."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from nsqadmin.access.guard import is_browser
from nsqadmin.changes.action import Action, Form, Question, Target
from nsqadmin.changes.actions import ACTIONS, targets_of
from nsqadmin.changes.commands import ActionResult
from nsqadmin.changes.effects import message_result, summary
from nsqadmin.changes.message_actions import body_of
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.collecting.messages import BadSearchError
from nsqadmin.pages.render import PageNote
from nsqadmin.pages.replies import Pages, refuse_embedding
from nsqadmin.stats.present import plural
from nsqcore.http.api import ApiError, Request, Response
from nsqcore.http.router import Route

# Enough for a test message and for a policy; larger messages are published by programs.
_FORM_LIMIT: Final = 1 << 20
# As many as a list shows; and how many are processed at a time.
MAX_PICKED: Final = 50
_CONCURRENCY: Final = 4
_MAX_WARNINGS: Final = 8
# The arguments of a list of messages.
_LIST: Final = ("topic", "channel", "state", "order", "start", "contains", "json", "node")


class Forms(Pages):
    """GET explains and asks; POST with ``confirmed`` acts and redirects to the page that shows the result."""

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/action", self.explaining(self.confirm), logged=False),
            Route("POST", "/action", self.explaining(self.act)),
        ]

    async def confirm(self, request: Request) -> Response:
        refuse_embedding(request)
        return await self._answer(request, {key: [value] for key, value in request.query.items()})

    async def act(self, request: Request) -> Response:
        body = (await request.read(_FORM_LIMIT)).decode("utf-8", "replace")
        return await self._answer(request, parse_qs(body, keep_blank_values=True))

    async def _answer(self, request: Request, given: Mapping[str, Sequence[str]]) -> Response:
        fields = defaultdict(str, {key: values[0] for key, values in given.items() if values})
        action = ACTIONS.get(next(iter(given.get("action", ())), ""))
        picked = given.get("pick", ())
        lacks = action is not None and action.needs and not fields.get(action.needs) and "pick" not in fields
        if action is None or (lacks and request.method == "GET"):
            raise UnknownError("ACTION_NOT_FOUND")
        if lacks:
            return self._nothing_picked(request)
        form = Form(targets_of(action, fields, picked, self._runner.scene), fields)
        for topic in {one.topic for one in form.targets} or {""}:
            if request.method == "POST":
                self._runner.check(request, action.name, topic)
            elif not self._runner.may(request, action.name, topic):
                raise ApiError(HTTPStatus.FORBIDDEN, "FORBIDDEN")
        if not 0 < len(form.targets) <= MAX_PICKED:
            return self._nothing_picked(request)
        if request.method != "POST" or not next(iter(given.get("confirmed", ())), ""):
            return await self._question(request, action, form)
        typed = action.typed(self._runner.scene, form)
        if typed and fields.get("typed", "").strip() != typed:
            return await self._question(request, action, form, f"Type {typed} to confirm.", 422)
        if action.is_previewed and (fields.get("shown") or action.name == "seek"):
            question = await self._explained(action, form)
            if question.problem:
                problem = f"Nothing was done: {question.problem}"
                return await self._question(request, action, form, problem, 422)
            if question.display != fields.get("shown"):
                problem = "Nothing was done: this is what it would do now."
                return await self._question(request, action, form, problem, 409)
        return await self._do(request, action, form)

    def _nothing_picked(self, request: Request) -> Response:
        if not is_browser(request):
            raise ApiError(400, "INVALID_SELECTION")
        return self.problem(request, f"Select at least one row and at most {MAX_PICKED}.", 400)

    # -- asking -------------------------------------------------------------------------

    async def _explained(self, action: Action, form: Form) -> Question:
        try:
            return await action.effects(self._runner.scene, form)
        except (BadSearchError, ValueError) as error:
            return Question(problem=f"{str(error).removesuffix('.')}.")

    async def _question(
        self, request: Request, action: Action, form: Form, problem: str = "", status: int = 200
    ) -> Response:
        question = await self._explained(action, form)
        problem = problem or question.problem
        fields = form.fields
        visible = {*action.inputs, "action", "confirmed", "typed", "shown", "pick"}
        return self._render.page(
            request,
            "confirm.html",
            status=422 if problem and status == HTTPStatus.OK else status,
            at_s=time.time(),
            action=action,
            title=_title(action, form),
            targets=form.targets,
            fields=fields,
            hidden={key: text for key, text in fields.items() if text and key not in visible},
            question=question,
            problem=problem,
            warnings=question.warnings,
            typed=action.typed(self._runner.scene, form),
            nodes=await self._nodes(form.one.topic) if "node" in action.inputs else (),
            back=self._origin(action, form),
        )

    async def _nodes(self, topic: str) -> list[str]:
        """Return the nodes on which a message can be published: holders of the topic first."""
        try:
            holders = (await self._runner.scene.commands.reader.holders(topic)).value
        except UnknownError:
            holders = []
        views = (await self._cluster.overview()).value.nodes
        takes = [view.address for view in views if view.answers and view.remaining is None]
        return sorted(takes, key=lambda one: one not in holders)

    # -- doing it -----------------------------------------------------------------------

    async def _do(self, request: Request, action: Action, form: Form) -> Response:
        if "pick" in form.fields:
            return await self._do_all(request, action, form)
        try:
            done = await self._runner.do(request, action, form.one, dict(form.fields))
        except (BadSearchError, ValueError) as error:
            problem = f"Nothing was done: {str(error).removesuffix('.')}."
            return await self._question(request, action, form, problem, 422)
        except UpstreamError as error:
            self._log.error("%s", error)
            verdict = "Not confirmed" if any(one.may_happen for one in error.errors) else "It failed"
            sentences = "; ".join(self.sentences(error.errors))
            return await self._question(request, action, form, f"{verdict}: {sentences}.", 502)
        if done.message:
            self._log.warning("%s", done.message.removeprefix("WARNING: "))
        return self._render.redirect(self._result_page(action, form), self._note(action, form, done))

    async def _do_all(self, request: Request, action: Action, form: Form) -> Response:
        gate = asyncio.Semaphore(_CONCURRENCY)

        async def do(target: Target) -> ActionResult | str:
            async with gate:
                try:
                    return await self._runner.do(request, action, target, dict(form.fields))
                except UnknownError:
                    return f"{target.name} is not there any more"
                except (UpstreamError, BadSearchError) as error:
                    errors = error.errors if isinstance(error, UpstreamError) else ()
                    return f"{target.name}: {'; '.join(self.sentences(errors)) or error}"

        results = await asyncio.gather(*map(do, form.targets))
        done = [result for result in results if not isinstance(result, str)]
        kind = form.one.kind
        details, by_node = summary(done, kind)
        warnings = [result for result in results if isinstance(result, str)][:_MAX_WARNINGS] + by_node
        # If every nsqd refused, no queue changed, though nsqlookupd may have changed registrations.
        count = sum(one.is_done for one in done)
        were = "was" if count == 1 else "were"
        to = f" to {form.fields['to']}" if action.name == "seek" else ""
        text = f"{plural(count, kind)} of {len(form.targets)} {were} {action.done}{to}."
        note = PageNote(text, tuple(warnings), tuple(details))
        return self._render.redirect(self._origin(action, form), note)

    # -- where it ends -------------------------------------------------------------------

    def _origin(self, action: Action, form: Form) -> str:
        """Return the address of the page from which the action is usually chosen."""
        urls, one, fields = self._urls, form.one, form.fields
        if "pick" in fields:
            topics = {target.topic for target in form.targets}
            if one.kind == "node":
                return urls.page("nodes")
            return urls.topic(one.topic) if one.channel and len(topics) == 1 else urls.page("topics")
        match "lookup" if fields.get("back") == "lookup" else action.back:
            case "messages":
                query = {key: fields.get(key, "") for key in _LIST}
                if fields.get("id") or action.inputs:
                    query["node"] = ""
                return urls.page("messages", **query)
            case "index":
                return urls.index
            case "":
                if one.node:
                    return urls.node(one.node)
                return urls.channel(one.topic, one.channel) if one.channel else urls.topic(one.topic)
            case page:
                return urls.page(page)

    def _result_page(self, action: Action, form: Form) -> str:
        urls, one = self._urls, form.one
        if action.name != "delete" or form.fields.get("back") == "lookup":
            return self._origin(action, form)
        return urls.topic(one.topic) if one.channel else urls.index

    def _note(self, action: Action, form: Form, done: ActionResult) -> PageNote:
        warnings = self.sentences(done.errors)
        named = {error.address for error in done.errors}
        warnings += [
            f"nsqd {node} was not reached: nothing changed there" for node in done.silent if node not in named
        ]
        result, more = message_result(action.name, action.done, form.one.place, done)
        text = action.note.format(
            **form.words,
            done=action.done,
            nsqds=plural(done.nsqds, "nsqd"),
            nodes=plural(done.nsqds, "node"),
            also=f" and {plural(done.lookupds, 'nsqlookupd')}" if done.lookupds else "",
            was="was" if done.nsqds else "was not",
            size=plural(len(body_of(form.fields)), "byte"),
            result=result,
        )
        return PageNote(text, tuple(dict.fromkeys([*warnings, *more])))


def _title(action: Action, form: Form) -> tuple[str, ...]:
    """Return the headline in parts: before the name, the name, behind it; and the word on the button."""
    if "pick" in form.fields:
        what = plural(len(form.targets), form.one.kind)
        return f"{action.verb} {what}?", "", "", f"{action.verb} {what}"
    words = form.words | {"verb": action.verb}
    return tuple(text.format(**words) for text in (*action.title, action.button))
