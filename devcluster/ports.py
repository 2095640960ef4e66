"""Checks whether the ports that the cluster needs are free."""

import socket

from devcluster.layout import HOST, DaemonPlan


def taken_ports(daemons: list[DaemonPlan]) -> list[str]:
    """Return the ports of the plan on which another program listens, each with its use."""
    return [
        f"port {port} ({daemon.name} {kind.upper()})"
        for daemon in daemons
        for kind, port in daemon.ports.items()
        if not _is_free(port)
    ]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the daemons do: lingering connections of an earlier run do not count as listeners.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
