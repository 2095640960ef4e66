"""Checks objects against Kubernetes' own schemas, strictly: a field that they do not know is an error.

kubernetes-validate reads the definitions of a whole release for each object; here they are read once.
"""

import functools
import re
from typing import Any

import jsonschema
from kubernetes_validate import utils
from referencing import Registry, Resource


def check(thing: dict[str, Any], version: str) -> None:
    """Raise ``jsonschema.ValidationError`` if Kubernetes *version* would refuse the object."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", thing["apiVersion"])
    _validator(_folder(version), f"{thing['kind'].lower()}-{group}").validate(thing)


@functools.cache
def _folder(version: str) -> str:
    """The folder of the newest release that is not newer than *version*."""
    wanted = tuple(map(int, version.split(".")))
    old_enough = [
        each for each in utils.all_versions() if tuple(map(int, utils.major_minor(each).split("."))) <= wanted
    ]
    return f"kubernetes-json-schema/v{old_enough[-1]}-local-strict"


@functools.cache
def _definitions(folder: str) -> Resource[Any]:
    return Resource.from_contents(utils.schema_contents(f"{folder}/_definitions.json", folder))


@functools.cache
def _validator(folder: str, kind: str) -> jsonschema.Draft202012Validator:
    schema = utils.schema_contents(f"{folder}/{kind}.json", folder)
    registry: Registry[Any] = _definitions(folder) @ (Resource.from_contents(schema) @ Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)
