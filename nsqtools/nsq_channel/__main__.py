"""The ``nsq_channel`` command."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nsqcore.near_misses import meant_name
from nsqcore.options.options import parse
from nsqcore.process.output import write_message
from nsqtools.nsq_channel.options import ACTIONS, HELP, ActionOptions, NoAction
from nsqtools.process import run

if TYPE_CHECKING:
    import asyncio


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0].lstrip("-") in {"h", "help"}:
        write_message(HELP.removesuffix("\n"))
        return 0
    if not words or words[0].startswith("-"):
        # parse() ends the program with the help, the version or a sentence.
        parse(NoAction, ActionOptions.program, words)
    action = words.pop(0)
    if action not in ACTIONS:
        near = meant_name(action, ACTIONS)
        meant = f"; is {near} meant?" if near else f"; {ActionOptions.program} -help lists them"
        write_message(f"{action} is no action of {ActionOptions.program}{meant}")
        return 2
    options = parse(ACTIONS[action], f"{ActionOptions.program} {action}", words)

    async def work(stop: "asyncio.Event") -> None:
        # Loading this is most of a start, so it comes when signals are already handled.
        from nsqtools.nsq_channel.actions import run_action

        await run_action(action, options, stop)

    return run(work)


if __name__ == "__main__":
    sys.exit(main())
