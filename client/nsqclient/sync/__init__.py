"""The same client for programs without an event loop: its loop runs in a thread, and calls block.

Everything here may be called from any thread.
"""

from nsqclient.sync._consumer import Consumer
from nsqclient.sync._producer import Producer

__all__ = ["Consumer", "Producer"]
