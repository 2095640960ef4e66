"""Empty a nsqd before it is stopped: a preStop hook, or a command before a node is removed.

    python -m nsqd.drain --http-address=127.0.0.1:4151 --timeout=5m

Publishes are refused from the start, so producers fail over; consumers go on reading. It ends with 0 when
nothing remains, and with 1 and one sentence about what does when the time is up, or as soon as all that
remains waits at topics without a channel, which nobody can read.
"""

import argparse
import http.client
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from nsqcore.service.durations import SECOND, parse_duration

POLL_SECONDS: Final = 0.25
# A line now and then, so that a log shows that it goes on.
SAY_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 5.0
_NAMED: Final = 5


class DrainError(Exception):
    """The drain did not come to its end; the text says why."""


def stuck(topic: dict[str, Any]) -> bool:
    """Whether what remains of the topic cannot be read by anybody: it has no channel."""
    return bool(topic["backlog"]) and topic["channel_count"] == 0


def hopeless(state: dict[str, Any]) -> bool:
    """Whether waiting is of no use: something remains, and none of it can be read."""
    return bool(state["topics"]) and all(stuck(topic) for topic in state["topics"])


def sentence(state: dict[str, Any]) -> str:
    """What remains, the largest first."""
    parts: list[tuple[int, str]] = []
    for topic in state["topics"]:
        name = topic["topic_name"]
        if stuck(topic):
            parts.append(
                (topic["backlog"], f"{topic['backlog']} of {name}, which has no channel to drain to")
            )
        elif topic["backlog"]:
            why = ", which is paused" if topic["paused"] else ""
            parts.append((topic["backlog"], f"{topic['backlog']} of {name}{why}"))
        parts.extend((channel["remaining"], _channel(name, channel)) for channel in topic["channels"])
    parts.sort(key=lambda part: -part[0])
    named = [text for _, text in parts[:_NAMED]]
    if len(parts) > _NAMED:
        named.append(f"{len(parts) - _NAMED} more")
    count = state["remaining"]
    return f"{count} message{'' if count == 1 else 's'} remain{'s' if count == 1 else ''}: {'; '.join(named)}"


def _channel(topic_name: str, channel: dict[str, Any]) -> str:
    text = f"{channel['remaining']} of {topic_name}/{channel['channel_name']}"
    if channel["paused"]:
        return f"{text}, which is paused"
    return f"{text}, which has no consumer" if not channel["client_count"] else text


def drain(address: str, timeout_s: float, at_least_s: float) -> None:
    """Start the drain and wait for its end, *at_least_s* in any case. Raises DrainError."""
    began = time.monotonic()
    said = -SAY_SECONDS
    state = ask(address, "POST")
    while not state["drained"] and not hopeless(state):
        passed = time.monotonic() - began
        if passed >= timeout_s:
            break
        if state["remaining"] and passed - said >= SAY_SECONDS:
            said = passed
            print(f"draining {address}: {sentence(state)}", flush=True)
        time.sleep(POLL_SECONDS)
        state = ask(address, "GET")
    # Others are still told that the node takes nothing more.
    time.sleep(max(0.0, at_least_s - (time.monotonic() - began)))
    if not state["drained"]:
        raise DrainError(sentence(state))


def ask(address: str, method: str) -> dict[str, Any]:
    """The node's answer to /drain. Raises DrainError."""
    connection = http.client.HTTPConnection(address, timeout=_ANSWER_SECONDS)
    try:
        connection.request(method, "/drain")
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise DrainError(f"{method} http://{address}/drain: {response.status} {body[:200]!r}")
        state: dict[str, Any] = json.loads(body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DrainError(f"{method} http://{address}/drain: {error or type(error).__name__}") from error
    else:
        return state
    finally:
        connection.close()


def parse_arguments(argv: Sequence[str] | None) -> tuple[str, int, int]:
    """The address, and the time-out and the least time in nanoseconds."""
    parser = argparse.ArgumentParser(prog="nsqd-drain", description="Empty a nsqd before it is stopped.")
    parser.add_argument("--http-address", default="127.0.0.1:4151", metavar="HOST:PORT", help="of the nsqd")
    parser.add_argument(
        "--timeout", default=300 * SECOND, type=parse_duration, metavar="DURATION", help="such as 5m"
    )
    parser.add_argument(
        "--at-least",
        default=0,
        type=parse_duration,
        metavar="DURATION",
        help="stay so long even when nothing remains",
    )
    options = parser.parse_args(argv)
    return options.http_address, options.timeout, options.at_least


def main(argv: Sequence[str] | None = None) -> int:
    address, timeout, at_least = parse_arguments(argv)
    try:
        drain(address, timeout / SECOND, at_least / SECOND)
    except DrainError as error:
        print(f"nsqd-drain: {error}", file=sys.stderr)
        return 1
    print(f"{address} is drained")
    return 0


if __name__ == "__main__":
    sys.exit(main())
