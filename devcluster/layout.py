"""Which daemons the cluster consists of, on which ports and with which flags. Pure."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
# The name of nsqadmin at the provider of sign-in, the people there, and their roles. Groups are named after
# roles.
CLIENT_ID: Final = "nsqadmin"
PEOPLE: Final = (("anna", "admin"), ("otto", "operator"), ("rita", "reader"), ("vera", "viewer"))

LOOKUPD_TCP: Final = 4160
LOOKUPD_HTTP: Final = 4161
ADMIN_HTTP: Final = 4171
PROVIDER_HTTP: Final = 4180
NSQD_TCP: Final = 4150
NSQD_HTTP: Final = 4151
NSQD_DISTANCE: Final = 100  # the second nsqd listens this much higher
NSQD_COUNT: Final = 2

MAX_PORT_OFFSET: Final = 65535 - NSQD_HTTP - NSQD_DISTANCE


@dataclass(frozen=True, slots=True)
class DaemonPlan:
    """How one daemon is started: its name in messages and logs, the command, and its ports."""

    name: str
    command: tuple[str, ...]
    ports: dict[str, int]  # "tcp" and "http"
    folder: Path | None = None  # the data that it retains between runs

    @property
    def listeners(self) -> list[str]:
        return [kind.upper() for kind in self.ports]

    def address(self, kind: str) -> str:
        return f"{HOST}:{self.ports[kind]}"


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """All daemons of the cluster, in the order in which they start; they stop in the opposite order."""

    lookupd: DaemonPlan
    nsqds: tuple[DaemonPlan, ...]
    admin: DaemonPlan
    logs: Path
    # The provider of sign-in, and the file with the secret that it shares with nsqadmin; None without
    # sign-in.
    provider: DaemonPlan | None = None
    secret_file: Path | None = None

    @property
    def daemons(self) -> list[DaemonPlan]:
        return [self.lookupd, *self.nsqds, self.admin]

    @property
    def listening(self) -> list[DaemonPlan]:
        """Everything that listens on a port."""
        return [*self.daemons, *([self.provider] if self.provider is not None else [])]


def plan_cluster(data: Path, port_offset: int, *, sign_in: bool = False) -> ClusterLayout:
    """Plan the cluster that stores its files below *data*, with *port_offset* added to every port."""
    lookupd = _plan(
        "nsqlookupd",
        "nsqlookupd",
        {"tcp": LOOKUPD_TCP + port_offset, "http": LOOKUPD_HTTP + port_offset},
        f"--broadcast-address={HOST}",
    )
    nsqds = []
    for number in range(NSQD_COUNT):
        raised = port_offset + number * NSQD_DISTANCE
        folder = data / f"nsqd-{number + 1}"
        nsqds.append(
            _plan(
                f"nsqd-{number + 1}",
                "nsqd",
                {"tcp": NSQD_TCP + raised, "http": NSQD_HTTP + raised},
                f"--broadcast-address={HOST}",
                f"--lookupd-tcp-address={lookupd.address('tcp')}",
                f"--data-path={folder}",
                folder=folder,
            )
        )
    provider, secret_file, flags = None, None, []
    if sign_in:
        # The runner itself serves it, so there is no command.
        provider = DaemonPlan("provider of sign-in", (), {"http": PROVIDER_HTTP + port_offset})
        secret_file = data / "sign-in" / "client-secret"
        flags = [
            f"--oidc-issuer=http://{provider.address('http')}",
            f"--oidc-client-id={CLIENT_ID}",
            f"--oidc-client-secret-file={secret_file}",
            *(f"--role={role}:group={role}s" for _, role in PEOPLE),
        ]
    admin = _plan(
        "nsqadmin",
        "nsqadmin",
        {"http": ADMIN_HTTP + port_offset},
        f"--lookupd-http-address={lookupd.address('http')}",
        *flags,
    )
    return ClusterLayout(lookupd, tuple(nsqds), admin, data / "logs", provider, secret_file)


def _plan(
    name: str, program: str, ports: dict[str, int], *flags: str, folder: Path | None = None
) -> DaemonPlan:
    listen = [f"--{kind}-address={HOST}:{port}" for kind, port in ports.items()]
    return DaemonPlan(name, (sys.executable, "-m", program, *listen, *flags), ports, folder)
