"""Requests that a browser sends on behalf of somebody else's page."""

from collections.abc import Mapping
from urllib.parse import urlsplit


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Tell whether a browser sends this request on behalf of another site.

    Browsers say so themselves, and a page cannot forge these headers; programs send none of them and pass.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in {"same-origin", "none"}
    origin = headers.get("Origin")
    if origin is None:
        return False
    host = urlsplit(origin).netloc
    # A proxy in front may rewrite Host; another site's page cannot add X-Forwarded-Host without our consent.
    return not host or host not in {headers.get("Host"), headers.get("X-Forwarded-Host")}
