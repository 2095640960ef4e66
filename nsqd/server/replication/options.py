"""The cluster secret, and the flags of replication."""

from collections.abc import Callable
from pathlib import Path

from nsqcore.process.lifecycle import StartupError
from nsqd.options import NsqdOptions
from nsqd.policies.quantities import size_bytes
from nsqd.replication.handshake import parse_secrets
from nsqd.replication.log_stream import ReplicaSettings


class ClusterSecret:
    """The secrets in a file, read for each connection, so that they can be rotated."""

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        """*warn* is called when the file becomes unusable later. Raises StartupError."""
        self._path = path
        self._warn = warn
        # Why the file is unusable now; one warning is given for each reason.
        self._problem = ""
        try:
            self._secrets = self._read()
        except ValueError as error:
            raise StartupError(str(error)) from error

    def __call__(self) -> tuple[bytes, ...]:
        """The secrets in the file, the first of which proves; empty without a file.

        While the file is unusable, these are the secrets that it had before.
        """
        try:
            self._secrets = self._read()
        except ValueError as error:
            if str(error) != self._problem:
                self._warn(f"{error}; the secrets of the last usable file stay in force")
            self._problem = str(error)
        else:
            self._problem = ""
        return self._secrets

    def _read(self) -> tuple[bytes, ...]:
        """Raises ValueError with one sentence."""
        if not self._path:
            return ()
        try:
            return parse_secrets(Path(self._path).read_bytes())
        except OSError as error:
            raise ValueError(f"failed to read --cluster-secret-file - {error}") from error
        except ValueError as error:
            raise ValueError(f"--cluster-secret-file {self._path} is not usable: {error}") from error


def replica_settings(options: NsqdOptions) -> ReplicaSettings:
    """The flags that the rules and streams know."""
    return ReplicaSettings(
        replicas=options.replicas,
        refuse=options.replicas_missing == "refuse",
        strict=options.sync_every == 1,
        timeout_ns=options.replica_ack_timeout,
        catch_up_rate=size_bytes(options.catch_up_rate),
        failover_ns=options.failover_timeout,
        accept=options.accept_replicas,
    )
