"""One announcing connection: how its commands change the registry, and their answers. Pure."""

from dataclasses import dataclass
from typing import Final

from nsqclient.wire.errors import E_BAD_CHANNEL, E_BAD_TOPIC, E_INVALID, ProtocolError
from nsqclient.wire.frames import OK
from nsqclient.wire.names import is_valid_name
from nsqcore.lookup_protocol import Available, Command, Identify, Ping, Register, Unregister, decode_peer_info
from nsqlookupd.registry import Key, Peer, Registry

_CLIENT: Final[Key] = ("client", "", "")
NOTES: Final = 20
# The stored characters of an obstacle, which is one word when it comes from our nsqd.
_OBSTACLE: Final = 64


@dataclass(frozen=True, slots=True)
class SessionNote:
    """A line for the log."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    payload: bytes
    notes: tuple[SessionNote, ...] = ()


_OK: Final = SessionAnswer(OK)


class NsqdSession:
    """The state of one connection. *identity* is the JSON with which this nsqlookupd answers IDENTIFY."""

    def __init__(self, registry: Registry, identity: bytes, peer_id: str) -> None:
        self._registry = registry
        self._identity = identity
        self._id = peer_id
        self.peer: Peer | None = None
        # How many more changes are logged in this step; a fleet that comes back makes millions.
        self.notes_left = NOTES
        self.unnoted = 0

    def handle(self, command: Command, now_ns: int) -> SessionAnswer:
        """Carry out one command. Raises ProtocolError, which the peer receives before the connection ends."""
        if isinstance(command, Ping):
            return self._ping(now_ns)
        if isinstance(command, Register):
            return self._register(command)
        if isinstance(command, Unregister):
            return self._unregister(command)
        if isinstance(command, Available):
            return self._available(command)
        return self._identify(command, now_ns)

    def close(self, now_ns: int) -> None:
        """Hide this nsqd from readers, because its connection is gone."""
        if self.peer is not None:
            self._registry.remove_peer(self.peer, now_ns)

    def forget(self, at_most: int) -> list[SessionNote]:
        """Forget up to *at_most* keys of a closed connection; the notes are empty when all is forgotten."""
        if self.peer is None:
            return []
        keys = self._registry.forget(self.peer, at_most)
        if keys[-1] == _CLIENT:
            self.peer = None
        return [self._note("UNREGISTER", key) for key in keys]

    def _identify(self, command: Identify, now_ns: int) -> SessionAnswer:
        info = decode_peer_info(command.body)
        self.peer = self._registry.add_peer(self._id, info, now_ns)
        said = (
            f"CLIENT({self._id}): IDENTIFY Address:{info.broadcast_address} TCP:{info.tcp_port}"
            f" HTTP:{info.http_port} Version:{info.version}"
        )
        return SessionAnswer(self._identity, (SessionNote(said), self._note("REGISTER", _CLIENT)))

    def _ping(self, now_ns: int) -> SessionAnswer:
        if self.peer is None:
            return SessionAnswer(OK)
        ago_ns = now_ns - self.peer.last_update_ns
        self.peer.last_update_ns = now_ns
        return SessionAnswer(
            OK, (SessionNote(f"CLIENT({self._id}): pinged (last ping {ago_ns / 1e9:.6g}s)"),)
        )

    def _available(self, command: Available) -> SessionAnswer:
        peer = self._identified()
        peer.obstacle = command.obstacle[:_OBSTACLE]
        # The obstacle decides whether it accepts replicas, so encode it again.
        peer.text = peer.node_text = b""
        said = f"UNAVAILABLE ({peer.obstacle})" if peer.obstacle else "AVAILABLE"
        return SessionAnswer(OK, (SessionNote(f"CLIENT({self._id}): {said}"),))

    def _register(self, command: Register) -> SessionAnswer:
        peer = self._identified()
        topic, channel = command.topic, command.channel or None
        if topic is None or not self._registry.knows(topic, channel):
            topic, channel = _checked_names("REGISTER", topic, channel)
        added = self._registry.register(peer, topic, channel)
        if not added:
            return _OK
        if self.notes_left <= 0:
            self.unnoted += len(added)
            return _OK
        self.notes_left -= len(added)
        return SessionAnswer(OK, tuple(self._note("REGISTER", key) for key in added))

    def _unregister(self, command: Unregister) -> SessionAnswer:
        peer = self._identified()
        topic, channel = _checked_names("UNREGISTER", command.topic, command.channel)
        if channel is not None:
            gone = self._registry.unregister_channel(peer, topic, channel)
            return SessionAnswer(OK, (self._note("UNREGISTER", ("channel", topic, channel)),) if gone else ())
        # An nsqd unregisters its channels before their topic, so a channel that is still here is unexpected.
        notes = tuple(
            self._note("unexpected UNREGISTER", key, warning=True)
            if key[0] == "channel"
            else self._note("UNREGISTER", key)
            for key in self._registry.unregister_topic(peer, topic)
        )
        return SessionAnswer(OK, notes)

    def _identified(self) -> Peer:
        if self.peer is None:
            raise ProtocolError(E_INVALID, "client must IDENTIFY")
        return self.peer

    def _note(self, what: str, key: Key, *, warning: bool = False) -> SessionNote:
        category, name, subname = key
        return SessionNote(
            f"DB: client({self._id}) {what} category:{category} key:{name} subkey:{subname}", warning
        )


def _checked_names(word: str, topic: str | None, channel: str | None) -> tuple[str, str | None]:
    if topic is None:
        raise ProtocolError(E_INVALID, f"{word} insufficient number of params")
    if not is_valid_name(topic):
        raise ProtocolError(E_BAD_TOPIC, f"{word} topic name '{topic}' is not valid")
    # An empty channel parameter (a blank at the end of the line) means none.
    if not channel:
        return topic, None
    if not is_valid_name(channel):
        raise ProtocolError(E_BAD_CHANNEL, f"{word} channel name '{channel}' is not valid")
    return topic, channel
