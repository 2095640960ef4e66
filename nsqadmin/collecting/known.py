"""The members of the cluster as far as known, for all code that answers questions about it."""

from collections.abc import Iterable
from typing import Final

from nsqadmin.collecting.answers import UpstreamError
from nsqadmin.collecting.collector import Collector
from nsqadmin.collecting.members import Member, MemberList
from nsqadmin.options import OptionsNow
from nsqclient.wire.node_error import NodeError
from nsqcore.cluster.discovery import Discovery, LookupdDiscovery, StaticDiscovery
from nsqcore.cluster.http import ClusterHttp

NODE_NOT_FOUND: Final = "NODE_NOT_FOUND"


class Known:
    """The members that the collector has, and the errors of those that do not answer."""

    def __init__(self, http: ClusterHttp, options: OptionsNow, collector: Collector) -> None:
        self._http = http
        self._options = options
        self.collector = collector
        self.membership = collector.membership

    @property
    def uses_lookupd(self) -> bool:
        return self.membership.uses_lookupd

    @property
    def discovery(self) -> Discovery:
        """The discovery that asks for the nodes of this moment."""
        options = self._options()
        if options.nsqlookupd_http_addresses:
            return LookupdDiscovery(self._http, options.nsqlookupd_http_addresses)
        return StaticDiscovery(self._http, options.nsqd_http_addresses)

    @property
    def prompt_discovery(self) -> Discovery:
        """The discovery for pages: it asks none of which is known that it does not answer."""
        if self.uses_lookupd:
            answering = [one.address for one in self.registers_or_none if one.error is None]
            return LookupdDiscovery(self._http, answering)
        return StaticDiscovery(self._http, [one.asked_at for one in self.members if one.error is None])

    @property
    def members(self) -> list[Member]:
        return sorted(self.membership.members.values(), key=lambda member: member.address)

    def member(self, address: str) -> Member | None:
        return next((member for member in self.membership.everyone() if member.address == address), None)

    @property
    def registers_or_none(self) -> list[MemberList]:
        addresses = self._options().nsqlookupd_http_addresses
        return [self.membership.registers.get(address) or _unasked(address) for address in addresses]

    @property
    def registers(self) -> list[MemberList]:
        """The list of each nsqlookupd. Raises UpstreamError if none of them answers."""
        registers = self.registers_or_none
        if registers and all(one.error is not None for one in registers):
            raise UpstreamError("nsqlookupd", [one.error for one in registers if one.error is not None])
        return registers

    @property
    def silent_registers(self) -> tuple[NodeError, ...]:
        return tuple(one.error for one in self.registers_or_none if one.error is not None)


def require_one(members: Iterable[Member]) -> None:
    """Raise UpstreamError if there are nsqds and none of them answers."""
    found = list(members)
    silent = errors_of(found)
    if found and len(silent) == len(found):
        raise UpstreamError("nsqd", silent)


def errors_of(members: Iterable[Member]) -> tuple[NodeError, ...]:
    return tuple(member.error for member in members if member.error is not None)


def register_errors(registers: Iterable[MemberList], path: str) -> tuple[NodeError, ...]:
    """Return the errors of the nsqlookupds that do not answer, as if *path* had been requested."""
    return tuple(
        NodeError(
            one.error.verb,
            f"http://{one.address}{path}",
            one.address,
            one.error.reason,
            status=one.error.status,
            code=one.error.code,
        )
        for one in registers
        if one.error is not None
    )


def _unasked(address: str) -> MemberList:
    reason = "it has not answered yet"
    return MemberList(address, error=NodeError("GET", f"http://{address}/nodes", address, reason))
