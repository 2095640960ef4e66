"""The processor time of another process, to the nanosecond: /proc counts it in hundredths of a second."""

import time


def process_seconds(pid: int) -> float:
    """User and system time of all threads of the process so far.

    Raises OSError if there is no such process. The clock's number is made as Linux makes it
    (clock_getcpuclockid(3)), which Python does not offer for other processes.
    """
    return time.clock_gettime((~pid << 3) | 2)
