"""docs/reference/client.md is the output of scripts/client_reference.py and describes every public name."""

import importlib.util
import pkgutil
import re
from pathlib import Path

import nsqclient

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("client_reference", ROOT / "scripts" / "client_reference.py")
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


def test_page_is_what_code_says():
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), (
        "run scripts/client_reference.py and commit what it writes"
    )


def test_public_names_are_described():
    parts = re.split(r"^## ", reference.page(), flags=re.MULTILINE)[1:]
    words = {
        part.split()[0]: re.sub(r"```python.*?```", "", part.partition("\n")[2], flags=re.DOTALL)
        for part in parts
    }
    silent = [name for name, text in words.items() if not re.search(r"^[\w`*].+", text, re.MULTILINE)]

    assert set(nsqclient.__all__) - {"__version__"} <= words.keys()
    assert silent == []


def test_signature_is_written_as_users_call_it():
    code = """
class C:
    def __init__(self, *names: str, size: int = 3) -> None: ...
    async def ask(self, question: str, /, timeout: float | None = None, **more: object) -> bytes: ...
"""
    cls = reference.ast.parse(code).body[0]

    assert reference.signature("C", cls.body[0]) == "C(*names: str, size: int = 3)"
    assert reference.signature("ask", cls.body[1]) == (
        "async ask(question: str, timeout: float | None = None, **more: object) -> bytes"
    )


def test_modules_outside_interface_are_private():
    public = {
        module.name for module in pkgutil.iter_modules(nsqclient.__path__) if not module.name.startswith("_")
    }

    # The daemons of this project share wire and net.
    assert public == {"integrations", "middlewares", "net", "sync", "testing", "version", "wire"}
