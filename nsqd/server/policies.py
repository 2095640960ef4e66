"""The policies of this node: those of --policies-file, and those that were set over HTTP.

A policy that is set over HTTP is durable before it takes effect. HTTP cannot change the policies of the file,
and if both have a policy of one name, the file's counts.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from nsqcore.process.logs import Log
from nsqd.engine.broker import Broker
from nsqd.engine.settings import SettingsOf
from nsqd.log.disk import Disk, error_text
from nsqd.policies.definition import BadPolicy
from nsqd.policies.effects import would_delete
from nsqd.policies.policy import Policy, PolicySet
from nsqd.policies.written import from_json, from_toml, to_json

FILE_NAME: Final = "policies.json"
# How many deletions a refusal names.
_NAMED: Final = 3


class ManagedByFile(Exception):
    """The policy is in the file, so HTTP may not change it; the text is a sentence."""


class WouldDelete(Exception):
    """The change would delete stored messages, and was not confirmed; the text is a sentence."""


class Policies:
    """See the module."""

    def __init__(
        self,
        broker: Broker,
        disk: Disk,
        data_path: Path,
        file: str,
        log: Log,
        *,
        ask_turn: Callable[[], None],
    ) -> None:
        """*file* is the path of --policies-file, empty for none."""
        self._broker = broker
        self._disk = disk
        self._path = data_path / FILE_NAME
        self._file = file
        self._log = log
        self._ask_turn = ask_turn
        self._of_file: dict[str, Policy] = {}
        self._of_http: dict[str, Policy] = {}
        self._changing = asyncio.Lock()
        self.all = PolicySet()

    def load(self) -> None:
        """Read both sets of policies, before topics are loaded. Raises BadPolicy with one sentence."""
        try:
            self._of_http = _by_name(from_json(self._disk.read_file(self._path)))
        except FileNotFoundError:
            pass
        except (OSError, BadPolicy) as error:
            # Without these policies messages would be retained or dropped against the operator's will.
            raise BadPolicy(f"failed to read policies from {self._path} - {error}") from error
        if self._file:
            self._of_file = self._read_file()
        self._take(self._joined(self._of_file, self._of_http))

    def reload(self) -> None:
        """Read the policies file again; if it cannot be used, nothing changes."""
        try:
            of_file = self._read_file()
            joined = self._joined(of_file, self._of_http)
        except BadPolicy as error:
            self._log.error("%s; the policies stay as they were", error)
            return
        for sentence in would_delete(self._broker, joined.settings_for, time.time_ns()):
            self._log.warning("policies: %s", sentence)
        self._of_file = of_file
        self._take(joined)
        self._log.info("policies: read %d from %s again", len(of_file), self._file)

    def comes_from_file(self, policy: Policy) -> bool:
        return policy.name in self._of_file

    async def put(
        self, policies: Iterable[Policy], *, exclusive: bool, apply: bool, dry: bool = False
    ) -> None:
        """Set these policies; with *exclusive* they replace all others that were set over HTTP.

        With *dry* they are only checked.

        Raises ManagedByFile, WouldDelete unless *apply*, BadPolicy, and OSError; then nothing has changed.
        """
        async with self._changing:
            new = _by_name(policies)
            if exclusive:
                # A list that another node answered includes the file's policies; equal ones are no change.
                for name in [one for one, policy in new.items() if self._is_files(policy)]:
                    del new[name]
            self._refuse_files(new)
            await self._change(new if exclusive else self._of_http | new, apply=apply, dry=dry)

    async def delete(self, name: str, *, apply: bool) -> None:
        """Delete a policy set over HTTP. Raises KeyError if there is none, and the errors of :meth:`put`."""
        async with self._changing:
            self._refuse_files((name,))
            rest = dict(self._of_http)
            del rest[name]
            await self._change(rest, apply=apply)

    async def _change(self, of_http: dict[str, Policy], *, apply: bool, dry: bool = False) -> None:
        joined = self._joined(self._of_file, of_http)
        if not apply:
            self._refuse_deletion(joined.settings_for)
        if dry:
            return
        content = to_json(of_http.values())
        await asyncio.to_thread(self._save, content)
        self._of_http = of_http
        # The file may have been read again since.
        self._take(self._joined(self._of_file, of_http))
        self._log.info("policies: %d over HTTP, digest of all %s", len(of_http), self.all.digest())

    def _save(self, content: bytes) -> None:
        self._disk.replace(self._path, content, durable=True)
        self._disk.sync_folder(self._path.parent)

    def _take(self, joined: PolicySet) -> None:
        self.all = joined
        self._broker.apply(joined.settings_for)
        self._ask_turn()

    def _read_file(self) -> dict[str, Policy]:
        try:
            text = Path(self._file).read_text(encoding="utf-8-sig")
            return _by_name(from_toml(text))
        except OSError as error:
            reason = error_text(error)
            raise BadPolicy(f"failed to read policies file {self._file} - {reason}") from error
        except ValueError as error:
            raise BadPolicy(f"failed to read policies file {self._file} - {error}") from error

    @staticmethod
    def _joined(of_file: dict[str, Policy], of_http: dict[str, Policy]) -> PolicySet:
        return PolicySet((of_http | of_file).values())

    def _is_files(self, policy: Policy) -> bool:
        files = self._of_file.get(policy.name)
        return files is not None and files.to_json() == policy.to_json()

    def _refuse_files(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._of_file:
                raise ManagedByFile(
                    f"policy {name} is in the policies file of this nsqd and is changed there"
                )

    def _refuse_deletion(self, settings_of: SettingsOf) -> None:
        sentences = list(would_delete(self._broker, settings_of, time.time_ns()))
        if sentences:
            named = "; ".join(sentences[:_NAMED])
            more = f"; and {len(sentences) - _NAMED} more" if len(sentences) > _NAMED else ""
            raise WouldDelete(f"{named}{more}; apply=true does it")


def _by_name(policies: Iterable[Policy]) -> dict[str, Policy]:
    return {policy.name: policy for policy in policies}
