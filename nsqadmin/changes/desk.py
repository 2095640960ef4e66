"""Where an admin's wishes arrive, from the JSON API and from the pages: rights, deed, notification."""

import base64
import binascii
import socket
import time
from collections.abc import Callable
from typing import Any

from nsqadmin.access.rights import is_admin
from nsqadmin.changes.actions import Actions, Done, QueueAction
from nsqadmin.changes.notify import AdminAction
from nsqadmin.collecting.answers import UnknownError, UpstreamError
from nsqadmin.options import OptionsNow
from nsqcore.service.foreign import is_foreign
from nsqcore.service.httpapi import ApiError, Request


class Desk:
    """Carries out changes for those who may ask for them, and has them told to the notification endpoint."""

    def __init__(self, actions: Actions, options: OptionsNow, tell: Callable[[AdminAction], None]) -> None:
        self._actions = actions
        self._options = options
        self._tell = tell
        self._via = socket.gethostname()
        # How often each action was carried out, for /metrics.
        self.done: dict[str, int] = {}

    def is_admin(self, request: Request) -> bool:
        return is_admin(self._options(), request.headers)

    def check(self, request: Request) -> None:
        """Refuse those who are no admins, and requests that another site's page makes a browser send."""
        if not self.is_admin(request) or is_foreign(request.headers):
            raise ApiError(403, "FORBIDDEN")

    async def create(self, request: Request, topic: str, channel: str) -> Done:
        if channel:
            done = await self._actions.create_channel(topic, channel)
            self._notify(request, "create_topic", topic)
            self._notify(request, "create_channel", topic, channel)
            return done
        done = await self._actions.create_topic(topic)
        self._notify(request, "create_topic", topic)
        return done

    async def change(self, request: Request, topic: str, channel: str, action: QueueAction) -> Done:
        """Pause, unpause or empty a channel, or the topic itself when *channel* is empty."""
        word = f"{action.value}_{'channel' if channel else 'topic'}"
        try:
            if channel:
                done = await self._actions.change_channel(topic, channel, action)
            else:
                done = await self._actions.change_topic(topic, action)
        except (UpstreamError, UnknownError):
            # Some nodes may have carried it out before their answer was lost, so the attempt is told as well.
            self._notify(request, word, topic, channel)
            raise
        self._notify(request, word, topic, channel)
        return done

    async def delete(self, request: Request, topic: str, channel: str) -> Done:
        if channel:
            done = await self._actions.delete_channel(topic, channel)
            self._notify(request, "delete_channel", topic, channel)
        else:
            done = await self._actions.delete_topic(topic)
            self._notify(request, "delete_topic", topic)
        return done

    async def tombstone(self, request: Request, topic: str, node: str) -> Done:
        done = await self._actions.tombstone(topic, node)
        self._notify(request, "tombstone_topic_producer", topic, node=node)
        return done

    def _notify(self, request: Request, action: str, topic: str, channel: str = "", node: str = "") -> None:
        self.done[action] = self.done.get(action, 0) + 1
        headers = request.headers
        scheme = "https" if headers.get("X-Scheme") == "https" else "http"
        self._tell(
            AdminAction(
                action=action,
                topic=topic,
                channel=channel,
                node=node,
                timestamp=int(time.time()),
                user=_basic_auth_user(headers),
                remote_ip=request.peer,
                user_agent=headers.get("User-Agent", ""),
                url=f"{scheme}://{headers.get('Host', '')}{request.target}",
                via=self._via,
            )
        )


def _basic_auth_user(headers: Any) -> str:
    scheme, _, credentials = str(headers.get("Authorization", "")).partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return ""
