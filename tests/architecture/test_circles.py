"""No module of nsqd imports itself, directly or through other modules."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules():
    """The syntax tree of each module of nsqd, by its name."""
    found = {}
    for path in (ROOT / "nsqd").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(tree, names):
    """Those of the modules *names* that a module imports, including imports for types only."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            wanted = [f"{node.module}.{one.name}" for one in node.names]
            found |= {one if one in names else node.module for one in wanted}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found & names


def circle(graph):
    """The modules of one circle; empty without a circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_imports_of_nsqd_have_no_circle():
    trees = modules()

    assert circle({name: imports(tree, trees.keys()) for name, tree in trees.items()}) == []
