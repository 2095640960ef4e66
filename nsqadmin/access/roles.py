"""Who may do what: people and programs have roles, for all topics or for some; PURE."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final


class Role(IntEnum):
    """Each role may do everything that the roles before it may."""

    NONE = 0
    # Reads statistics.
    VIEWER = 1
    # Also sees the content of messages.
    READER = 2
    # Pauses, resumes, empties, creates; publishes, handles messages, seeks; drains nodes.
    OPERATOR = 3
    # Deletes, hides topics from consumers, changes the configuration, reads the audit.
    ADMIN = 4


ANYBODY: Final = "*"


@dataclass(frozen=True, slots=True)
class Person:
    """The person who makes a request; *via* is ``header``, ``token``, ``sign-in``, or empty if anonymous."""

    name: str = ""
    groups: tuple[str, ...] = ()
    via: str = ""


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """A role for a user, a group, a token or anybody, for topics that match the pattern."""

    role: Role
    kind: str
    name: str
    topics: str = ANYBODY

    def is_for(self, person: Person) -> bool:
        match self.kind:
            case "user":
                return person.via in {"header", "sign-in"} and person.name == self.name
            case "group":
                return self.name in person.groups
            case "token":
                return person.via == "token" and person.name == self.name
            case "known":
                return bool(person.via)
        return True


def parse_grant(text: str) -> RoleGrant:
    """Read ``operator:group=payments:pay*``. Raises ValueError with a sentence if it is no grant."""
    word, colon, rest = text.partition(":")
    role = Role.__members__.get(word.upper())
    if role is None or role is Role.NONE:
        raise ValueError(f"{word} is no role: there are viewer, reader, operator and admin")
    who, _, topics = rest.partition(":")
    kind, equals, name = who.partition("=")
    if who == ANYBODY:
        kind, name = "anybody", ""
    elif not colon or kind not in {"user", "group"} or not equals or not name:
        raise ValueError(f"{text} does not say whose role it is: user=NAME, group=NAME or *")
    return RoleGrant(role, kind, name, topics or ANYBODY)


def role_of(person: Person, grants: Iterable[RoleGrant], topic: str = "") -> Role:
    """Return the role of *person*: from grants for all topics, and from those that match *topic*."""
    return max(
        (
            grant.role
            for grant in grants
            if grant.is_for(person)
            and (grant.topics == ANYBODY or (topic and fnmatchcase(topic, grant.topics)))
        ),
        default=Role.NONE,
    )


def grants_of(
    roles: Sequence[str], admins: Sequence[str], tokens: Iterable[RoleGrant], *, signs_in: bool
) -> list[RoleGrant]:
    """Return all grants that the options make.

    Without any, everybody may do everything, as in the original. With admins only, all others are viewers.
    """
    tokens = list(tokens)
    if not roles and not admins and not signs_in and not tokens:
        return [RoleGrant(Role.ADMIN, "anybody", "")]
    found = [parse_grant(role) for role in roles]
    found += [RoleGrant(Role.ADMIN, "user", name) for name in admins]
    if not roles:
        # With sign-in, every identified person is a viewer; without it, every client is.
        found.append(RoleGrant(Role.VIEWER, "known" if signs_in else "anybody", ""))
        if not admins and not signs_in:
            # Tokens alone take no rights away from the people who had them.
            found.append(RoleGrant(Role.ADMIN, "anybody", ""))
    return [*found, *tokens]
