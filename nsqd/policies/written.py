"""Policies as they are written: the operator's TOML file, and JSON over HTTP and in the data path.

In the file each policy is a table ``[policies.NAME]`` with ``topic``, perhaps ``channel`` and ``priority``,
and ``definition``; JSON has a list of the same with their names.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from nsqd.policies.definition import BadPolicy
from nsqd.policies.policy import Policy, PolicySet

_TABLE: Final = "policies"


def from_toml(text: str) -> list[Policy]:
    """The policies of the operator's file. Raises BadPolicy."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPolicy(f"it is no TOML: {error}") from error
    for key in content:
        if key != _TABLE:
            raise BadPolicy(f"there is no {key!r} in a file of policies; each is a table [policies.NAME]")
    said = content.get(_TABLE, {})
    if not isinstance(said, Mapping):
        raise BadPolicy("policies must be tables [policies.NAME]")
    return _checked(Policy(name, one) for name, one in said.items())


def from_json(text: bytes) -> list[Policy]:
    """The policies of ``{"policies": [...]}``, each with its name. Raises BadPolicy."""
    content = json_of(text)
    said = content.get(_TABLE) if isinstance(content, Mapping) else None
    if not isinstance(said, list):
        raise BadPolicy('a list of policies is written {"policies": [...]}')
    return _checked(_named(one) for one in said)


def json_of(text: bytes) -> Any:
    """*text* as JSON. Raises BadPolicy."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPolicy("it is no JSON") from error


def listed(policy: Policy) -> dict[str, Any]:
    """A policy as an entry of such a list."""
    return {"name": policy.name, **policy.to_json()}


def to_json(policies: Iterable[Policy]) -> bytes:
    """The JSON that `from_json` reads."""
    said = [listed(policy) for policy in sorted(policies, key=lambda policy: policy.name)]
    return json.dumps({_TABLE: said}, indent=1).encode()


def _named(one: Any) -> Policy:
    if not isinstance(one, Mapping) or "name" not in one:
        raise BadPolicy("each policy of a list needs its name")
    # An answer of a node adds "from". It is left out, so that another node understands the answer.
    return Policy(one["name"], {key: value for key, value in one.items() if key not in {"name", "from"}})


def _checked(policies: Iterable[Policy]) -> list[Policy]:
    """Raises BadPolicy for two policies of one name, and for too many."""
    found = list(policies)
    names = [policy.name for policy in found]
    for name in names:
        if names.count(name) > 1:
            raise BadPolicy(f"policy {name} is there twice")
    PolicySet(found)
    return found
