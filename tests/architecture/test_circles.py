"""Imports within nsqd go one way: no module needs another that needs it, over however many others."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules():
    """The source of each module by its name."""
    found = {}
    for path in (ROOT / "nsqd").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(tree, names):
    """The modules among those *names* that a module imports, also where it imports for types alone."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            wanted = [f"{node.module}.{one.name}" for one in node.names]
            found |= {one if one in names else node.module for one in wanted}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found & names


def circle(graph):
    """The modules of a circle, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_there_is_no_circle_in_nsqd():
    trees = modules()

    assert circle({name: imports(tree, trees.keys()) for name, tree in trees.items()}) == []
