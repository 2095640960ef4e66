"""What Java and Spark say at each start or when Java has died, and what nobody has to read."""

import logging
import os
import re
import threading
from pathlib import Path
from typing import Final

_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j|Setting default log level to|"
    rb"To adjust logging level use|Setting Spark log level to|"
    rb"\S+ \S+ WARN (?:Utils: (?:Your hostname|Set SPARK_LOCAL_IP)|NativeCodeLoader: Unable to load)"
)
_STDERR: Final = 2


def is_noise(line: bytes) -> bool:
    return _NOISE.match(line) is not None


def hush_py4j() -> None:
    """Have no traceback of threads that talk with a dead JVM, some of it behind the job's sentence."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    # It says some of it in nobody's name.
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


class QuietPipe:
    """A pipe for the stderr of Spark's JVM: what comes out of it is written to ours, without the noise."""

    def __init__(self) -> None:
        self._out, self.end = os.pipe()
        # The JVM may outlive the job by a moment; nobody waits for its last words.
        self._thread = threading.Thread(target=self._pass_on, name="what Java says", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The JVM has its own end now."""
        os.close(self.end)

    def join(self) -> None:
        """Wait until all has been said."""
        self._thread.join()

    def _pass_on(self) -> None:
        with os.fdopen(self._out, "rb") as said:
            for line in said:
                if not is_noise(line):
                    os.write(_STDERR, line)
