"""The part of RE2's syntax that Python's ``re`` can replace. Pure.

``re`` backtracks, so a careless pattern may take it years. Here a repeat is of one character, there are few
repeats, and at most one group, which is not repeated: the worst of these patterns takes milliseconds for a
name of NSQ. Syntax that the two read differently is translated.
"""

import re
from typing import Final

# Each repeat on one way through a pattern may be as long as the name. Three such repeats take 64**3 steps,
# and so do some thousand alternatives with one repeat.
_LONGEST_NAME: Final = 64
_MAX_NESTED_REPEATS: Final = 3
_MAX_REPEATS: Final = 1000  # as in RE2

_PUNCTUATION: Final = r"\\[!-/:-@\[-^`{-~]"
_IN_CLASS: Final = rf"(?:[^-\\\[\]\ud800-\udfff]|{_PUNCTUATION})"
_MEMBER: Final = re.compile(
    rf"\[:(?P<posix>[a-z]+):\]|\\(?P<perl>[dws])|(?P<low>{_IN_CLASS})(?:-(?P<high>{_IN_CLASS}))?"
)
_ANY_MEMBER: Final = re.sub(r"\?P<\w+>", "?:", _MEMBER.pattern)
_TOKEN: Final = re.compile(
    rf"""
    (?P<place> [$^|)] | \((?:\?:)? )
    | (?:
        (?P<dot> \. )
        | \\(?P<perl> [dwsDWS] )
        | (?P<quoted> {_PUNCTUATION} )
        | \[(?P<inverse> \^? )(?P<members> -?(?:{_ANY_MEMBER})*-? )\]
        | (?P<plain> [^.\\*+?^$|(){{}}\[\]\ud800-\udfff] )
    ) (?P<times> [*+?] | \{{ (?P<least> \d{{1,4}} ) (?: , (?P<most> \d{{0,4}} ) )? \}} )?
    """,
    re.VERBOSE,
)

_PERL: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}  # ``re`` also counts \v as a blank
_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "digit": "0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
}


def translated(pattern: str) -> str | None:
    """The same pattern for ``re``; None when it is invalid or not simple enough."""
    found = []
    work = _Work()
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            return None
        at = token.end()
        if place := token["place"]:
            if not work.passes(place):
                return None
            found.append({"$": r"\Z", "(": "(?:"}.get(place, place))
            continue
        one = _character(token)
        if one is None or not _has_sense(token):
            return None
        if token["times"]:
            work.repeats()
            one += token["times"]
        found.append(one)
    return "".join(found) if work.is_little() else None


class _Work:
    """The number of steps that it may take to find out that nothing matches."""

    def __init__(self) -> None:
        self._groups = 0
        self._is_open = False  # inside the group
        self._steps = 0  # of the alternatives before
        self._outside = 0  # repeats of this alternative, outside the group
        self._inside = [0]  # repeats of each alternative within its group

    def passes(self, place: str) -> bool:
        """Whether a group, its end, an anchor or ``|`` is allowed here."""
        if place == "|" and self._is_open:
            self._inside.append(0)
        elif place == "|":
            self._end_choice()
        elif place[0] == "(":
            self._groups += 1
            self._is_open = True
            return self._groups == 1
        elif place == ")":
            self._is_open, was_open = False, self._is_open
            return was_open
        return True

    def repeats(self) -> None:
        if self._is_open:
            self._inside[-1] += 1
        else:
            self._outside += 1

    def is_little(self) -> bool:
        self._end_choice()
        return not self._is_open and self._steps <= _LONGEST_NAME**_MAX_NESTED_REPEATS

    def _end_choice(self) -> None:
        self._steps += sum(_LONGEST_NAME ** min(self._outside + each, 9) for each in self._inside)
        self._outside, self._inside = 0, [0]


def _character(token: re.Match[str]) -> str | None:
    if token["dot"]:
        return r"[^\n]"
    if perl := token["perl"]:
        return f"[{'^' if perl.isupper() else ''}{_PERL[perl.lower()]}]"
    if token["members"] is not None:
        return _class(token["inverse"], token["members"])
    return re.escape(token["plain"] or token["quoted"][1])


def _class(inverse: str, members: str) -> str | None:
    found = []
    for member in _MEMBER.finditer(members):
        if member["posix"]:
            if member["posix"] not in _POSIX:
                return None
            found.append(_POSIX[member["posix"]])
        elif member["perl"]:
            found.append(_PERL[member["perl"]])
        else:
            low, high = member["low"][-1], (member["high"] or member["low"])[-1]
            if low > high:
                return None
            found.append(f"{re.escape(low)}-{re.escape(high)}")
    if members[:1] == "-" or members[-1:] == "-":
        found.append(r"\-")
    return f"[{inverse}{''.join(found)}]" if found else None


def _has_sense(token: re.Match[str]) -> bool:
    """Whether RE2 accepts the numbers of a repeat."""
    least, most = int(token["least"] or 0), int(token["most"] or token["least"] or 0)
    return least <= most <= _MAX_REPEATS or (token["most"] == "" and least <= _MAX_REPEATS)
