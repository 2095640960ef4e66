"""The part of RE2's syntax that Python's ``re`` can stand in for. Pure.

``re`` tries one way after the other, so a careless pattern may take it years. Here a repeat is of one
character, there are few of them, and there is one group, which is not repeated: the worst of these patterns
takes milliseconds for a name of NSQ. What the two read differently is spelled out in the translation.
"""

import re
from typing import Final

# Each repeat of a way through a pattern may be as long as the name: three of them take so many steps, and
# so do some thousand ways of one.
_LONGEST_NAME: Final = 64
_MOST_REPEATS: Final = 3
_MOST_TIMES: Final = 1000  # as in RE2

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

_PERL: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}  # ``re`` counts \v as a blank as well
_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "digit": "0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
}


def translated(pattern: str) -> str | None:
    """The same for ``re``; None when it is no pattern or not so simple."""
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
    """What it may take to find out that nothing matches."""

    def __init__(self) -> None:
        self._groups = 0
        self._is_open = False  # inside of the group
        self._steps = 0  # of the choices before
        self._outside = 0  # repeats of this choice
        self._inside = [0]  # repeats of each choice within its group

    def passes(self, place: str) -> bool:
        """Whether this may stand here."""
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
        return not self._is_open and self._steps <= _LONGEST_NAME**_MOST_REPEATS

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
    """Whether a repeat is one that RE2 takes."""
    least, most = int(token["least"] or 0), int(token["most"] or token["least"] or 0)
    return least <= most <= _MOST_TIMES or (token["most"] == "" and least <= _MOST_TIMES)
