"""The messages that Java and Spark print at each start, or after Java has died, and that nobody needs."""

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
    """Silence tracebacks of threads that talk to a dead JVM; some would come after the job's sentence."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    # Some of its messages use the root logger.
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


class QuietPipe:
    """A pipe for the stderr of Spark's JVM, whose lines are copied to our stderr without the noise."""

    def __init__(self) -> None:
        self._out, self.end = os.pipe()
        # A daemon thread: the JVM may outlive the job by a moment, and its last lines are not waited for.
        self._thread = threading.Thread(target=self._pass_on, name="what Java says", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close our copy of the end that the JVM writes to."""
        os.close(self.end)

    def join(self) -> None:
        """Wait until the JVM has closed its end."""
        self._thread.join()

    def _pass_on(self) -> None:
        with os.fdopen(self._out, "rb") as said:
            for line in said:
                if not is_noise(line):
                    os.write(_STDERR, line)
