"""The processor time of another process in nanoseconds; /proc only has hundredths of a second."""

import time


def process_seconds(pid: int) -> float:
    """Return user and system time of all threads of the process so far, in seconds.

    Raises OSError if there is no such process. The clock's number is computed as in clock_getcpuclockid(3) on
    Linux, because Python does not offer that for other processes.
    """
    return time.clock_gettime((~pid << 3) | 2)
