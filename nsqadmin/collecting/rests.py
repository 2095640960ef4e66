"""How long nsqlookupd is left alone between two questions for its list of nsqd. Pure."""

from typing import Final

# The list of a thousand nsqd with a thousand topics each is 19 MB and takes nsqlookupd a tenth of a second of
# its only thread. Everybody who watches the cluster asks; this much of the time of one may go to one asker.
LIST_SHARE: Final = 0.03
# A new nsqd is seen this soon, however large the list is.
MOST_S: Final = 15.0


def list_rest_s(took_s: float) -> float:
    """The least rest after a list that took so long to come; nothing to speak of for a small one."""
    return min(MOST_S, took_s / LIST_SHARE)
