"""How long nsqadmin waits between two requests to nsqlookupd for its list of nsqds. Pure."""

from typing import Final

# The list of a thousand nsqds with a thousand topics each is 19 MB and occupies nsqlookupd's only thread for
# a tenth of a second. Everybody who watches the cluster requests it; one client may take this share of an
# nsqlookupd's time.
LIST_SHARE: Final = 0.03
# A new nsqd is seen after at most this time, however large the list is.
MOST_S: Final = 15.0


def list_rest_s(took_s: float) -> float:
    """Return the least rest, in seconds, after a list that took *took_s* to arrive; tiny for a small one."""
    return min(MOST_S, took_s / LIST_SHARE)
