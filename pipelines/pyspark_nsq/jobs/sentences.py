"""The reason why a job ended, in one sentence: Spark reports it in a hundred lines, or not at all. Pure."""

import re
from typing import Final

from pyspark_nsq.source.errors import sentence_in

_RESTART: Final = "start the job again with the same checkpoint"
# The last line of a traceback.
_LAST: Final = re.compile(
    r"^Traceback \(most recent.*?^((?:\w+\.)*\w*(?:Error|Exception): .*?)$", re.MULTILINE | re.DOTALL
)
_KNOWN: Final = (
    (
        r"No module named '([\w.]+)'",
        r"the executors' Python has no \1: install pyspark-nsq there, or let PYSPARK_PYTHON name one",
    ),
    # If the process at the other end of Spark's pipe has died, Spark gives no reason, or the system's.
    (
        r"terminated with exception:\s+(?:(?:Connection reset(?: by peer)?|Broken pipe)\s+)?SQLSTATE",
        f"the Python process that plans the batches has died, killed or out of memory; {_RESTART}",
    ),
    (
        r"Python worker exited unexpectedly",
        f"a Python worker of Spark has died, killed or out of memory; {_RESTART}",
    ),
    (
        r"Answer from Java side is empty|Error while sending or receiving|Java gateway process exited",
        f"Spark's JVM has died, killed or out of memory; {_RESTART}",
    ),
    (
        r"^\[Errno \d+\] Connection (?:refused|reset by peer)$",
        f"Spark's JVM has died, killed or out of memory; {_RESTART}",
    ),
)


def sentence(error: BaseException) -> str:
    """Return the sentence for the person at the terminal."""
    text = str(error)
    own = sentence_in(text)
    if own:
        return own
    for sign, meaning in _KNOWN:
        found = re.search(sign, text)
        if found:
            return found.expand(meaning)
    last = _LAST.findall(text)
    return f"an error in Python code that Spark has run: {last[-1].strip()}" if last else first_line(error)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
