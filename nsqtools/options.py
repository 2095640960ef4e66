"""What the options of all tools have in common: no config file, one short line when they cannot work."""

from dataclasses import dataclass

from nsqcore.service.logs import timestamp
from nsqcore.service.options import CommandOptions
from nsqcore.version import NSQ_VERSION


@dataclass(frozen=True, kw_only=True)
class ToolOptions(CommandOptions):
    """What every tool understands."""

    @staticmethod
    def banner(program: str) -> str:
        return f"{program} v{NSQ_VERSION}"

    @staticmethod
    def refusal(program: str, sentence: str) -> str:  # noqa: ARG004 - the daemons' lines name their program
        return f"{timestamp()[:19]} {sentence}"


def one_kind_of_address(kind: str, nsqd: tuple[str, ...], lookupd: tuple[str, ...]) -> str | None:
    """Refuse none and both of the two ways to find nsqd; *kind* is ``tcp`` or ``http``."""
    if not nsqd and not lookupd:
        return f"--nsqd-{kind}-address or --lookupd-http-address required"
    if nsqd and lookupd:
        return f"use --nsqd-{kind}-address or --lookupd-http-address not both"
    return None
