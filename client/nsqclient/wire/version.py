"""The version peers see, and the form of answers that are asked for over HTTP."""

from typing import Final

# Clients negotiate by this number; it names the NSQ release whose behaviour we mirror.
NSQ_VERSION: Final = "1.3.0"
# What askers of the HTTP API accept: answers without an envelope around them.
ACCEPT: Final = "application/vnd.nsq; version=1.0"
