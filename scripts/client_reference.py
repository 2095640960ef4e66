#!/usr/bin/env python3
"""Write docs/reference/client.md from the signatures and docstrings of nsqclient; --check only compares."""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import nsqclient

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "client" / "nsqclient"
PAGE: Final = ROOT / "docs" / "reference" / "client.md"
# The part of the page above this line is written by hand.
WRITTEN: Final = "<!-- from here on written by scripts/client_reference.py -->"

# In addition to the names that `import nsqclient` offers: module -> classes and functions.
FURTHER: Final = {
    "sync._producer": ("Producer",),
    "sync._consumer": ("Consumer",),
    "middlewares.opentelemetry": ("OpenTelemetry",),
    "middlewares.prometheus": ("Prometheus",),
    "integrations.faststream.broker": ("NsqBroker",),
    "integrations.faststream.routing": ("NsqRegistrator", "NsqRouter", "NsqRoute"),
    "integrations.faststream.testing": ("TestNsqBroker",),
    "integrations.taskiq": ("NsqBroker", "DeadLetters"),
    "testing._server": ("MemoryNsqd",),
}
# The module from which users import, if that is not the one that defines the name.
SHOWN: Final = {"sync._producer": "sync", "sync._consumer": "sync", "testing._server": "testing"}
# A longer signature gets a line for each parameter.
_WIDTH: Final = 100

Function = ast.FunctionDef | ast.AsyncFunctionDef


def source(module: str) -> ast.Module:
    return ast.parse((SOURCES / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))


def definition(tree: ast.Module, name: str) -> ast.ClassDef | Function:
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            return node
    raise LookupError(name)


def documentation(node: ast.ClassDef | Function) -> str:
    """Return the docstring in Markdown; a Sphinx cross-reference becomes the bare name."""
    text = ast.get_docstring(node) or ""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


def parameters(function: Function) -> list[str]:
    """Return each parameter as it is written, without self."""
    given = function.args
    written = []
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    for argument, default in zip(positional, defaults, strict=True):
        if argument.arg not in {"self", "cls"}:
            written.append(parameter(argument, default))
    if given.vararg is not None:
        written.append(f"*{parameter(given.vararg, None)}")
    elif given.kwonlyargs:
        written.append("*")
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        written.append(parameter(argument, default))
    if given.kwarg is not None:
        written.append(f"**{parameter(given.kwarg, None)}")
    return written


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {ast.unparse(argument.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def signature(name: str, function: Function) -> str:
    words = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    given = parameters(function)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns and name[:1].islower() else ""
    line = f"{words}{name}({', '.join(given)}){returns}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{words}{name}(", *(f"    {each}," for each in given), f"){returns}"])


def decorators(function: Function) -> set[str]:
    return {ast.unparse(each) for each in function.decorator_list}


def blocking_twin(node: ast.stmt) -> Function | None:
    """Return the method that ``name = blocking(asynchronous.Class.name)`` makes, as it would be written."""
    if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args):
        return None
    words = ast.unparse(node.value.args[0]).split(".")
    if words[0] != "asynchronous":
        return None
    method = next(each for each in methods(class_of(words[1])) if each.name == words[2])
    returns = method.returns
    if ast.unparse(node.value.func) == "_later":
        returns = ast.parse("Future[None]", mode="eval").body
    return ast.FunctionDef(ast.unparse(node.targets[0]), method.args, method.body, [], returns)


def class_of(name: str) -> ast.ClassDef:
    """Return a class of the asynchronous face."""
    node = definition(source(nsqclient._HOMES[name]), name)
    assert isinstance(node, ast.ClassDef)
    return node


def methods(node: ast.ClassDef) -> list[Function]:
    """Return all methods in source order; those with the arguments of another class have its parameters."""
    found: list[Function] = []
    for each in node.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in each.decorator_list:
                if ast.unparse(decorator).startswith("same_arguments("):
                    [maker] = [one for one in methods(class_of(node.name)) if one.name == each.name]
                    each.args = maker.args
            found.append(each)
        elif (twin := blocking_twin(each)) is not None:
            found.append(twin)
    return found


def public(node: ast.ClassDef) -> list[Function]:
    """Return the public methods and properties in source order; of overloads the last, with the docstring."""
    found: dict[str, Function] = {}
    for each in methods(node):
        if not each.name.startswith("_") and f"{each.name}.setter" not in decorators(each):
            found[each.name] = each
    return list(found.values())


def fields(node: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """Yield the fields of a dataclass, each with the comment above or behind it."""
    if not any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        return
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_":
            default = f" = {plain(each.value)}" if each.value is not None else ""
            text = comments(lines, each.lineno - 1, each.end_lineno or each.lineno)
            written = f"{each.target.id}: {ast.unparse(each.annotation)}{default}"
            yield f"- `{written}`" + (f": {text}" if text else "")


def plain(value: ast.expr) -> str:
    """Return a default as users see it; of a field with a converter, only the value before conversion."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "_duration":
        return ast.unparse(value.args[0]).replace("_MINUTE_S", "60")
    return ast.unparse(value)


def comments(lines: list[str], begin: int, end: int) -> str:
    said: list[str] = []
    above = begin - 1
    while lines[above].strip().startswith("# "):
        said.insert(0, lines[above].strip()[2:])
        above -= 1
    if said and said[0].islower() and " " not in said[0]:
        del said[0]  # the name of a group of fields
    return " ".join(filter(None, [*said, lines[end - 1].partition("  # ")[2]]))


def entry(title: str, module: str, name: str) -> Iterator[str]:
    node = definition(source(module), name)
    yield f"## {title}"
    yield ""
    if not isinstance(node, ast.ClassDef):
        yield from block(signature(name, node), documentation(node))
        return
    makers = [each for each in methods(node) if each.name == "__init__"]
    bases = ", ".join(ast.unparse(each) for each in node.bases if not ast.unparse(each).startswith("Generic"))
    yield from block(
        signature(name, makers[-1]) if makers else f"{name}({bases})" if bases else name, documentation(node)
    )
    if makers and (text := documentation(makers[-1])):
        yield from (text, "")
    lines = (SOURCES / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8").splitlines()
    listed = list(fields(node, lines))
    yield from listed
    if listed:
        yield ""
    for function in public(node):
        if decorators(function) & {"property", "cached_property"}:
            returns = f": {ast.unparse(function.returns)}" if function.returns else ""
            yield from block(f"{function.name}{returns}", documentation(function), level="### ")
        else:
            yield from block(signature(function.name, function), documentation(function), level="### ")


def block(code: str, text: str, level: str = "") -> Iterator[str]:
    if level:
        name = re.split(r"[(:]", code.removeprefix("async "))[0]
        yield from (f"{level}{name}", "")
    yield from ("```python", code, "```", "")
    if text:
        yield from (text, "")


def page() -> str:
    """Return the page with everything below the line written again."""
    above = PAGE.read_text(encoding="utf-8").partition(WRITTEN)[0]
    lines = [WRITTEN, ""]
    for name in nsqclient.__all__:
        if name != "__version__":
            lines += entry(name, nsqclient._HOMES[name], name)
    for module, names in FURTHER.items():
        for name in names:
            shown = SHOWN.get(module, module)
            lines += entry(f"nsqclient.{shown}.{name}", module, name)
    return above + "\n".join(lines).rstrip("\n") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("; ", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        print("docs/reference/client.md is not what scripts/client_reference.py writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
