"""Imports within nsqd go one way: no module needs another that needs it, over however many others."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]

# One of them makes or calls the other, which names it in a type and imports nothing of it when it runs.
NAMED_IN_TYPES = {
    ("nsqd.log.tap", "nsqd.log.shrinking"),
    ("nsqd.engine.weight", "nsqd.engine.owed"),
    ("nsqd.replication.home", "nsqd.replication.home_link"),
    ("nsqd.replication.copy_jobs", "nsqd.replication.copy_folder"),
    ("nsqd.replication.willing", "nsqd.replication.keeper"),
}


def modules():
    """The source of each module by its name."""
    found = {}
    for path in (ROOT / "nsqd").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(tree, names):
    """(module, whether it is for types alone) of each import of one of those *names*."""
    found = set()
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            wanted = [f"{node.module}.{one.name}" for one in node.names]
            found |= {(one if one in names else node.module, id(node) in for_types) for one in wanted}
        elif isinstance(node, ast.Import):
            found |= {(one.name, id(node) in for_types) for one in node.names}
    return {(name, types) for name, types in found if name in names}


def circle(graph):
    """The modules of a circle, if there is one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_there_is_no_circle_in_nsqd():
    trees = modules()
    edges = {name: imports(tree, trees.keys()) for name, tree in trees.items()}

    assert (
        circle({name: {other for other, types in found if not types} for name, found in edges.items()}) == []
    )
    known = {
        name: {other for other, types in found if not types or (name, other) not in NAMED_IN_TYPES}
        for name, found in edges.items()
    }
    assert circle(known) == []
    # What is excused is there.
    assert {
        (name, other) for name, found in edges.items() for other, types in found if types
    } >= NAMED_IN_TYPES
