"""The version that peers see, and the format of answers that is requested over HTTP."""

from typing import Final

# Clients negotiate by this number; it is the NSQ release whose behaviour this project mirrors.
NSQ_VERSION: Final = "1.3.0"
# The Accept header for the HTTP API: answers without an envelope.
ACCEPT: Final = "application/vnd.nsq; version=1.0"
