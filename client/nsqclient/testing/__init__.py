"""An nsqd in memory for tests of programs that use NSQ; the pytest fixture ``memory_nsqd`` provides one."""

from nsqclient.testing._server import MemoryNsqd

__all__ = ["MemoryNsqd"]
