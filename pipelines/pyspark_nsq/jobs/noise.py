"""What Java and Spark say at each start, and what nobody has to read."""

import os
import re
import threading
from typing import Final

_NOISE: Final = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j|Setting default log level to|"
    rb"To adjust logging level use|Setting Spark log level to|"
    rb"\S+ \S+ WARN (?:Utils: (?:Your hostname|Set SPARK_LOCAL_IP)|NativeCodeLoader: Unable to load)"
)
_STDERR: Final = 2


def is_noise(line: bytes) -> bool:
    return _NOISE.match(line) is not None


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
