"""Recognises requests that a browser sends for a page of another site."""

from collections.abc import Mapping
from urllib.parse import urlsplit


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether a browser sends this request on behalf of another site.

    Browsers say so in headers that a page cannot forge. Programs send none of these headers and are accepted.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("Origin")
    if origin is None:
        return False
    try:
        host = urlsplit(origin).netloc
    except ValueError:
        # Not an origin, so not ours.
        return True
    # A proxy may rewrite Host. A page of another site cannot add X-Forwarded-Host without our consent.
    return not host or host not in {headers.get("Host"), headers.get("X-Forwarded-Host")}
