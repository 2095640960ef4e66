"""Runs one action of ``nsq_channel`` on all nsqd that have the topic, and prints a line for each."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nsqclient.wire.durations import MILLISECOND
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.fanout import call_all
from nsqcore.cluster.http import ClusterHttp
from nsqcore.cluster.lookupd_api import LookupdApi
from nsqcore.process.output import ReaderEnded, Unwritable, write_all
from nsqtools.cluster import ABSENT, cluster_http, not_found_sentence, nsqds, reason
from nsqtools.nsq_channel.options import (
    ActionOptions,
    ChannelOptions,
    CreateOptions,
    HandleOptions,
    MessageOptions,
    PoliciesOptions,
    RequeueOptions,
    SeekOptions,
    SendBackOptions,
)
from nsqtools.nsq_channel.sentences import (
    DONE,
    handled,
    policies_differ,
    policy_sentence,
    seek_sentence,
    sent_back,
)
from nsqtools.process import Failed, log_line, unless_stopped

Params = list[tuple[str, str]]


async def run_action(action: str, options: ActionOptions, stop: asyncio.Event) -> None:
    """Run the action on every nsqd; failures are reported, and successes are not undone."""
    await unless_stopped(stop, _on_all_nsqd(action, options))


async def _on_all_nsqd(action: str, options: ActionOptions) -> None:
    channel = options.channel if isinstance(options, ChannelOptions) else ""
    async with cluster_http(options) as http:
        addresses, failures = await nsqds(http, options)
        if action == "delete":
            failures += await _delete_from_lookupds(http, options, channel)
        one = _Action(http, action, options, channel)
        answers = await call_all(addresses, one.on)
    if answers.failed and all(error.code in ABSENT for error in answers.errors):
        raise Failed(not_found_sentence(options.topic, channel, answers.errors))
    by_id = isinstance(options, MessageOptions) and bool(options.id)
    for error in answers.errors:
        elsewhere = error.code in ABSENT or (by_id and answers.value and _is_on_another_nsqd(error))
        if not elsewhere:
            failures.append(f"{error.address}: {reason(error)}")
    if len(set(one.digests.values())) > 1:
        log_line(policies_differ(one.digests))
    try:
        for address, line in answers.value:
            write_all(f"{address}: {line}\n".encode())
    except ReaderEnded:
        # After `| head -1` the failures are named all the same, because the actions are done.
        if not failures:
            raise
    except Unwritable as error:
        failures.append(str(error))
    if failures:
        raise Failed(f"ERROR: {'; '.join(failures)}")


async def _delete_from_lookupds(http: ClusterHttp, options: ActionOptions, channel: str) -> list[str]:
    """Let each nsqlookupd forget a channel first, so that none makes an nsqd create it again."""
    lookupds = [LookupdApi(http, address) for address in options.lookupd_http_address]
    deleted = await call_all(lookupds, lambda lookupd: lookupd.delete_channel(options.topic, channel))
    return [f"{error.address}: {reason(error)}" for error in deleted.errors if error.code not in ABSENT]


def _is_on_another_nsqd(error: NodeError) -> bool:
    """Whether the error only means that the message is on another nsqd."""
    return error.code.startswith(("MESSAGE_NOT_FOUND", "INVALID_ARG_ID", "INVALID_ARG_FROM"))


class _Action:
    def __init__(self, http: ClusterHttp, action: str, options: ActionOptions, channel: str) -> None:
        self._http = http
        self._action = action
        self._options = options
        self._channel = channel
        # The digest of the policies of each nsqd that was asked for them.
        self.digests: dict[str, str] = {}

    async def on(self, address: str) -> str:
        """Run the action on one nsqd and return its result. Raises NodeError."""
        options = self._options
        if isinstance(options, HandleOptions):
            return await self._handle(address, options)
        if isinstance(options, SendBackOptions):
            return await self._send_back(address, options)
        if isinstance(options, PoliciesOptions):
            return await self._policies(address, options)
        params = [("topic", options.topic), ("channel", self._channel)]
        if isinstance(options, SeekOptions):
            return await self._http.post_for(
                address,
                "/channel/seek",
                [*params, ("to", options.to)],
                lambda answer: seek_sentence(int(answer["sequence"]), int(answer["pending"])),
            )
        if isinstance(options, CreateOptions) and options.start:
            params.append(("start", options.start))
        await self._http.post(address, f"/channel/{self._action}", params)
        return DONE[self._action]

    async def _handle(self, address: str, options: HandleOptions) -> str:
        params = [("channel", options.channel), *_which(options)]
        if options.state:
            params.append(("state", options.state))
        if isinstance(options, RequeueOptions) and options.defer:
            params.append(("defer", str(options.defer // MILLISECOND)))
        count = 0
        position = options.from_
        while True:
            try:
                answer = await self._ask(address, f"/message/{self._action}", params, position)
                count += int(answer["count"])
            except NodeError:
                if count:
                    log_line(
                        f"{address}: {handled(self._action, count, dry=options.dry_run)}; then it failed"
                    )
                raise
            if not answer.get("more"):
                return handled(self._action, count, dry=options.dry_run)
            position = str(answer["next"])

    async def _send_back(self, address: str, options: SendBackOptions) -> str:
        found = sent = 0
        left: Counter[str] = Counter()
        position = options.from_
        while True:
            try:
                answer = await self._ask(address, "/dead_letters/send_back", _which(options), position)
            except NodeError:
                if sent:
                    log_line(
                        f"{address}: {sent_back(found, sent, left, dry=options.dry_run)}; then it failed"
                    )
                raise
            found, sent = found + int(answer["found"]), sent + int(answer["sent"])
            left.update(answer["left"])
            if options.id or answer["next"] is None:
                return sent_back(found, sent, left, dry=options.dry_run)
            position = str(answer["next"])

    async def _policies(self, address: str, options: PoliciesOptions) -> str:
        where = [("topic", options.topic), *([("channel", options.channel)] if options.channel else [])]

        def read(answer: Mapping[str, Any]) -> str:
            self.digests[address] = str(answer["digest"])
            found = answer["in_force"]
            return policy_sentence(found["policy"], found["definition"], self.digests[address])

        return await self._http.get(address, "/policies", where, read)

    async def _ask(self, address: str, path: str, params: Params, position: str) -> Mapping[str, Any]:
        where = [("from", position)] if position else []
        return await self._http.post_for(address, path, [*params, *where], lambda answer: answer)


def _which(options: MessageOptions) -> Params:
    wanted = {
        "topic": options.topic,
        "id": options.id,
        "contains": options.contains,
        "json": options.json_field,
        "all": "true" if options.all and isinstance(options, HandleOptions) else "",
        "dry_run": "true" if options.dry_run else "",
    }
    return [(name, value) for name, value in wanted.items() if value]
