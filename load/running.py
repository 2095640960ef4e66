"""One run from its start to its verdict; everything that the run started is ended in every case."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from load.connection import read_access
from load.draining import drain_channels
from load.finding import ClusterAsker
from load.journal import read_journal
from load.plan import Plan
from load.preparing import NoCluster, delete_topics, find_cluster, make_topics
from load.profile import Profile
from load.recorder import read_curve
from load.report import write_report
from load.started import NotStarted, StartedCluster
from load.swarm import Swarm
from load.tally import Tally
from load.verdict import RunResult, faults, problems
from load.watching import Watch

SAMPLE_SECONDS: Final = 1.0
# How long Locust may take to begin on a busy machine, or to wait for workers on other machines.
BEGIN_SECONDS: Final = 300.0
# A run that takes this much longer than its profile says is ended.
GRACE_SECONDS: Final = 120.0
# How long a killed nsqd stays away, so that publishers must turn to another one.
AWAY_SECONDS: Final = 1.0

Log = Callable[[str], None]


class RunFailed(Exception):
    """The load could not be put on the cluster; the text says why."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run that are not part of its profile."""

    lookupds: list[str]
    """None: start a cluster."""
    admins: list[str]
    own_topic: bool
    """The topics are this run's alone: it deletes them at its end."""
    tls: dict[str, str]
    auth_secret_file: str
    auth_allow_cleartext: bool
    workers: int
    other_workers: int
    bind: str
    ui: int | None
    kill: bool
    report: Path | None
    keep: bool
    nsqd_flags: list[str]


@dataclass(frozen=True, slots=True)
class RunVerdict:
    result: RunResult
    faults: list[str]
    problems: list[str]
    folder: Path | None
    """Where journal and logs are, if they were kept."""


def run(profile: Profile, options: RunOptions, log: Log) -> RunVerdict:
    """Run the profile and return the verdict. Raises RunFailed if nothing could be measured."""
    try:
        access = read_access(
            options.tls, options.auth_secret_file, allow_cleartext=options.auth_allow_cleartext
        )
    except (OSError, ValueError) as error:
        raise RunFailed(str(error)) from error
    asker = ClusterAsker(access)
    folder = Path(tempfile.mkdtemp(prefix="nsq-load-"))
    with ExitStack() as stack:
        if not options.keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = StartedCluster(folder)
        stack.callback(cluster.close)
        try:
            if not options.lookupds:
                flags = [*profile.cluster.flags, *options.nsqd_flags]
                cluster.start(profile.cluster.nsqd, flags, nsqadmin=profile.cluster.nsqadmin)
                _wait_registered(asker, cluster)
            lookupds = options.lookupds or cluster.lookupds
            admins = options.admins or cluster.admins
            if profile.browsers and not admins:
                log("No nsqadmin is known (--nsqadmin): no pages are requested.")
                profile = replace(profile, browsers=[])
            nsqds = find_cluster(asker, lookupds)
            make_topics(asker, nsqds, profile.topics)
            if options.own_topic and options.lookupds:
                stack.callback(delete_topics, asker, nsqds, lookupds, profile.topics)
        except (NoCluster, NotStarted) as error:
            raise RunFailed(str(error)) from error
        plan = Plan(
            os.urandom(8).hex(),
            profile,
            lookupds,
            admins,
            options.tls,
            options.auth_secret_file,
            options.auth_allow_cleartext,
            str(folder),
        )
        others = {f"nsqlookupd {address}": address for address in lookupds}
        others |= {f"nsqadmin {address}": address for address in admins}
        watch = Watch(asker, nsqds, others, profile.topics.topics())
        swarm = Swarm(folder, plan)
        stack.callback(swarm.stop)
        swarm.start(workers=options.workers, others=options.other_workers, bind=options.bind, ui=options.ui)
        if options.ui is not None:
            log(
                f"Locust's page is at http://127.0.0.1:{options.ui}/ while the load lasts;"
                " Ctrl-C ends it early."
            )
        watcher = _Watcher(folder, swarm, watch, profile, log)
        killed = watcher.follow(cluster if options.kill else None)
        tally = _read_tally(folder, swarm)
        began_draining = time.monotonic()
        backlog = drain_channels(plan, access, watch, tally) if profile.consumers else watch.backlog()
        drained = time.monotonic() - began_draining
        curve = read_curve(folder / "curve.jsonl")
        tally.ended.add("draining")
        result = RunResult(
            profile,
            watcher.load_seconds(curve),
            tally.outcome(),
            dict(tally.errors),
            dict(tally.counts),
            dict(tally.latency),
            backlog,
            list(watch.usages.values()),
            drained,
            tally.unreported,
            killed,
            watcher.interrupted,
        )
        # If the run killed an nsqd, broken connections are expected and not reported.
        lost = [] if killed else sorted(tally.lost)
        found = problems(backlog, tally.errors, killed, lost)
        if options.report is not None:
            write_report(options.report, result, found, curve, watch.depths)
            for name in ("locust.html",):
                if (folder / name).exists():
                    shutil.copy(folder / name, options.report / name)
        return RunVerdict(result, faults(result), found, folder if options.keep else None)


def _wait_registered(asker: ClusterAsker, cluster: StartedCluster) -> None:
    deadline = time.monotonic() + BEGIN_SECONDS
    while len(asker.all_nsqd(cluster.lookupds)) < len(cluster.nsqds):
        if time.monotonic() > deadline:
            raise NotStarted("the nsqd did not register with nsqlookupd")
        time.sleep(0.05)


class _Watcher:
    """Watches the daemons while Locust's processes run; kills an nsqd halfway through if asked to."""

    def __init__(self, folder: Path, swarm: Swarm, watch: Watch, profile: Profile, log: Log) -> None:
        self._curve = folder / "curve.jsonl"
        self._swarm = swarm
        self._watch = watch
        self._profile = profile
        self._log = log
        self.interrupted = False

    def follow(self, cluster: StartedCluster | None) -> list[str]:
        """Watch until Locust has ended and return the names of the killed daemons. Raises RunFailed."""
        killed: list[str] = []
        away_since = 0.0
        seconds = self._profile.seconds
        started = time.monotonic()
        began = 0.0  # when the load began, which is later than the start of the processes
        shown = 0
        try:
            while not self._swarm.ended():
                time.sleep(0.1)
                now = time.monotonic()
                curve = self._events()
                if not began and curve:
                    began = now
                    self._watch.sample()
                if not began:
                    if now - started > BEGIN_SECONDS:
                        raise RunFailed(f"Locust did not begin:\n{self._swarm.log_tail()}")
                    continue
                if now - began > seconds + GRACE_SECONDS:
                    self._log("The run did not end by itself and is ended.")
                    break
                if cluster and not killed and self._half_of_the_load(curve, seconds):
                    cluster.nsqds[0].kill()
                    killed.append(cluster.nsqds[0].name)
                    away_since = now
                    self._log(f"{killed[0]} was killed with SIGKILL.")
                if away_since and now - away_since > AWAY_SECONDS:
                    away_since = 0.0
                    cluster.nsqds[0].start()  # type: ignore[union-attr]
                if now - began > (shown + 1) * SAMPLE_SECONDS:
                    shown += 1
                    self._watch.sample()
                    if shown % 5 == 0:
                        self._log_progress(curve)
        except KeyboardInterrupt:
            self.interrupted = True
            self._log("Ended early; what there is is judged.")
        finally:
            self._swarm.stop()
            if away_since and cluster is not None:
                cluster.nsqds[0].start()
        return killed

    def load_seconds(self, curve: list[dict[str, Any]]) -> float:
        events = {line["event"]: line["time"] for line in curve if "event" in line}
        if "begins" not in events:
            raise RunFailed(f"Locust ended without any load:\n{self._swarm.log_tail()}")
        last = max(line["time"] for line in curve)
        return float(max(0.1, events.get("load ended", last) - events["begins"]))

    def _events(self) -> list[dict[str, Any]]:
        return read_curve(self._curve)

    def _half_of_the_load(self, curve: list[dict[str, Any]], seconds: float) -> bool:
        """Log whether half of the load's own time is over; on a busy machine Locust begins late."""
        samples = [line for line in curve if "event" not in line]
        return (
            bool(samples)
            and samples[-1]["time"] - curve[0]["time"] >= seconds / 2
            and samples[-1]["acked"] > 0
        )

    def _log_progress(self, curve: list[dict[str, Any]]) -> None:
        samples = [line for line in curve if "event" not in line]
        if samples:
            last = samples[-1]
            backlog = self._watch.depths[-1][1] if self._watch.depths else 0
            self._log(
                f"{last['time'] - curve[0]['time']:4.0f} s: {last['acked']:,.0f} acknowledged,"
                f" {last['received']:,.0f} received, {backlog:,} pending, {last['errors']:.0f} errors"
            )


def _read_tally(folder: Path, swarm: Swarm) -> Tally:
    try:
        return read_journal(folder / "tally.jsonl")
    except (OSError, json.JSONDecodeError) as error:
        raise RunFailed(f"Locust ended without any load:\n{swarm.log_tail()}") from error
