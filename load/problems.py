"""Explains in sentences why a run went wrong, from the state of the cluster. Pure."""

from collections.abc import Iterable

from load.seen import Remaining

# Part of an error text -> what it means.
_MEANINGS = (
    ("No space left", "The disk of an nsqd is full"),
    ("disk", "The disk of an nsqd takes no more"),
    ("E_AUTH", "An nsqd does not accept the secret: look at --auth-secret-file"),
    ("asks for AUTH", "An nsqd asks for AUTH: give --auth-secret-file"),
    ("CERTIFICATE_VERIFY_FAILED", "The certificate of an nsqd is not trusted: look at --tls-root-ca-file"),
    ("has no TLS", "An nsqd has no TLS"),
    ("draining", "An nsqd is being drained"),
)


def problems(owed: Remaining, errors: Iterable[str], killed: Iterable[str], lost: Iterable[str]) -> list[str]:
    """Return sentences: what daemons report of themselves, which do not answer, and what the errors mean."""
    found = [f"{text[0].upper()}{text[1:]}." for text in dict.fromkeys(owed.problems)]
    found += [f"{name} was killed and started again, as asked for." for name in killed]
    found += [f"nsqd {address} was there at the start and does not answer now." for address in owed.silent]
    gone = set(owed.silent)
    found += [
        f"Connections to nsqd {address} broke during the run." for address in lost if address not in gone
    ]
    texts = list(errors)
    for part, meaning in _MEANINGS:
        if example := next((text for text in texts if part.lower() in text.lower()), None):
            found.append(f"{meaning} ({example}).")
            break
    return found
