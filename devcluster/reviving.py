"""A daemon that ends by itself is reported, and started again when the person at the terminal asks for it."""

import asyncio
from collections.abc import Callable
from typing import Final

from devcluster.keyboard import Keyboard
from devcluster.process import DaemonFailedError, DaemonProcess

# Without a keyboard (in the background, in a script) a daemon is started again after this time.
REST_SECONDS: Final = 5.0


async def keep_alive(daemon: DaemonProcess, keyboard: Keyboard, say: Callable[[str], None]) -> None:
    """Watch one daemon until cancelled, and start it again when it ends; the other daemons continue."""
    while True:
        say(f"{await daemon.ended()}\n           The other daemons continue. {_how(daemon, keyboard)}")
        if not await keyboard.enter():
            await asyncio.sleep(REST_SECONDS)
        try:
            await daemon.start()
        except DaemonFailedError as failure:
            daemon.kill()
            say(str(failure))
        else:
            say(f"{daemon.plan.name} runs again (pid {daemon.pid}).")


def _how(daemon: DaemonProcess, keyboard: Keyboard) -> str:
    if keyboard.is_there:
        return f"Press Enter to start {daemon.plan.name} again."
    return f"{daemon.plan.name} starts again in {REST_SECONDS:g} s."
