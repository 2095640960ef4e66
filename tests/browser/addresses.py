"""An address of every page; TOPIC, NODE and MESSAGE stand for those of the test's cluster."""

from typing import Final
from urllib.parse import urlencode

from tests.support.site import Site

ADDRESSES: Final = (
    "/",
    "/topics",
    "/topics?cols=ticked&col.depth=1&col.channels=1",
    "/topics?q=depth:>many",
    "/topics/orders",
    "/topics/orders/billing",
    "/topics/orders/audit",
    "/topics/orders/billing?by=host",
    "/topics/unknown",
    "/nodes",
    "/nodes/NODE",
    "/lookup",
    "/counter",
    "/policies",
    "/policies?topic=orders",
    "/audit",
    "/messages?topic=orders",
    "/messages?topic=orders&channel=audit",
    "/messages?topic=orders&channel=audit&state=waiting",
    "/messages?topic=orders&channel=billing&state=in_flight",
    "/messages?topic=orders&channel=audit&state=deferred",
    "/messages?topic=orders&channel=audit&state=finished",
    "/messages?topic=orders&start=soon",
    "/messages/one?MESSAGE",
    "/messages/one?MESSAGE&as=hex",
    "/action?action=publish&topic=orders",
    "/action?action=seek&topic=orders&channel=audit&to=-1h",
    "/action?action=finish&topic=orders&channel=audit&state=waiting",
    "/action?action=requeue&topic=orders&channel=audit&state=waiting",
    "/action?action=delete&topic=orders",
    "/action?action=empty&topic=orders&channel=audit",
    "/action?action=tombstone&topic=orders&node=NODE",
    "/action?action=drain&node=NODE",
)


def addresses_of(site: Site) -> list[str]:
    """All addresses, with a node and a message that exist."""
    found = site.admin.get("/messages?topic=orders&channel=audit&order=oldest&format=json")["messages"][0]
    message = urlencode({"topic": "orders", "channel": "audit", "node": found["node"], "id": found["id"]})
    return [
        path.replace("MESSAGE", message).replace("NODE", site.nsqds[0].http_address) for path in ADDRESSES
    ]
