"""One run: messages are published, a job on the cluster archives them, and processes are killed.

After every kill the job either continues, or ends with a known sentence and is started again with its
checkpoint. At the end each message must be in the archive once.
"""

import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow.parquet as pq

from tests.pipelines.conftest import Nodes
from tests.pipelines.spark_jobs import Archive
from tests.spark_campaign.standalone import CONF, Standalone
from tests.support.processes import Cluster
from tests.support.waiting import wait_until

TOPIC: Final = "t"
_PER_MPUB: Final = 100
_PER_BATCH: Final = 5000
_PAUSE_S: Final = 0.05
_BATCH_S: Final = 300
# Sentences with which a job may end because something was killed.
NAMED: Final = re.compile(
    r"nsq-archive: (the Python process that plans the batches has died|a Python worker of Spark has died|"
    r"Spark's JVM has died|Spark's master|an executor of Spark|nsqd \S+ |no nsqlookupd answered)"
)


class Run:
    """An NSQ cluster, a Spark cluster, and the job."""

    def __init__(self, folder: Path, seed: int, spark: Standalone | None = None) -> None:
        """If *spark* is given, it runs already and is left running."""
        self.draw = random.Random(seed)
        self.folder = folder
        self._borrowed = spark is not None
        self.spark = spark or Standalone(folder / "spark")
        self._cluster = Cluster(folder / "nsq")
        self.nodes = Nodes(self._cluster)
        self.job = Archive(
            folder,
            self.nodes.lookupd.http_address,
            TOPIC,
            f"--max-offsets-per-trigger={_PER_BATCH}",
            "--starting-offsets=earliest",
            "--retry-seconds=15",
        )
        self._flags = [
            f"--master={self.spark.url}",
            *(f"--conf={key}={value}" for key, value in CONF.items()),
        ]
        # Held by others while nothing may be published.
        self.publishing = threading.Lock()
        self.published = 0
        self.kills: Counter[str] = Counter()
        self.endings: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="publisher")

    def __enter__(self) -> Self:
        if not self._borrowed:
            self.spark.__enter__()
        self._thread.start()
        wait_until(lambda: self.published >= 2 * _PER_MPUB, "something is published")
        for nsqd in self.nodes.nsqds:
            self.nodes.listed(nsqd, TOPIC)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.job.kill()
        if not self._borrowed:
            self.spark.__exit__(kind, error, trace)
        self._cluster.close()

    # --- the job

    @property
    def pid(self) -> int:
        assert self.job.process is not None
        return self.job.process.pid

    def start(self, flag: str = "--trigger=200 milliseconds") -> None:
        self.job.spawn(flag, *self._flags)

    def has_ended(self) -> bool:
        return self.job.process is None or self.job.process.poll() is not None

    def one_more_batch(self) -> None:
        """Wait until the job has stored another batch; start it again if it has ended."""
        before = self._last_batch()

        def stored() -> bool:
            if self.has_ended():
                self.note_the_end()
                self.start()
            return self._last_batch() > before

        wait_until(stored, "another batch is stored", _BATCH_S)

    def note_the_end(self) -> None:
        """Check that a job that ended by itself ended with a known sentence; a killed job says nothing."""
        assert self.job.process is not None
        code = self.job.process.returncode
        if code < 0:
            self.endings["killed"] += 1
            return
        lines = self.job.said().strip().splitlines() or [""]
        found = NAMED.match(lines[-1])
        assert code == 1, (code, lines)
        assert found, self.job.said()
        self.endings[found[1]] += 1

    def _last_batch(self) -> int:
        """Return the number of the last batch that Spark has noted as stored."""
        names = [path.name for path in self.job.checkpoint.glob("commits/*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def kill(self, name: str, how: Callable[["Run"], bool]) -> None:
        """Kill something by *how* while the job runs; *how* returns whether something that ran was killed."""

        def killed() -> bool:
            if self.has_ended():
                self.one_more_batch()
            return how(self)

        wait_until(killed, f"there is some {name} to kill", 30)
        self.kills[name] += 1

    # --- the archive

    def finish(self) -> None:
        """Let the job read everything that was published, then count."""
        self._stop.set()
        self._thread.join()
        self.job.process.terminate()  # type: ignore[union-attr]
        self.job.process.wait(60)  # type: ignore[union-attr]
        for _ in range(3):
            self.start("--available-now")
            code, last = self.job.wait(240)
            if code == 0:
                break
            assert NAMED.match(last), self.job.said()
        found = Counter(self.stored())
        missing = sum(1 for number in range(self.published) if number not in found)
        twice = sum(count - 1 for count in found.values())
        assert (missing, twice, len(found)) == (0, 0, self.published), (missing, twice)

    def stored(self) -> list[int]:
        """Return the numbers of the messages in the archive."""
        return [
            int(body)
            for path in self._files()
            for body in pq.read_table(path, columns=["body"], partitioning=None)["body"].to_pylist()
        ]

    def _files(self) -> list[Path]:
        return [path for path in self.job.output.rglob("*.parquet") if "_unfinished" not in path.parts]

    # --- publishing

    def _publish(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            if self.published > (self._last_batch() + 2) * _PER_BATCH:
                continue
            with self.publishing:
                first = self.published
                bodies = b"\n".join(b"%d" % number for number in range(first, first + _PER_MPUB))
                nsqd = self.nodes.nsqds[first // _PER_MPUB % len(self.nodes.nsqds)]
                nsqd.post(f"/mpub?topic={TOPIC}", bodies)
                self.published = first + _PER_MPUB
