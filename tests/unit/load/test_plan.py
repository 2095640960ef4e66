"""The locustfile that workers get."""

import ast

from load.cli import load_profile
from load.plan import Plan


def test_locustfile_brings_the_whole_plan():
    plan = Plan(
        "0011223344556677",
        load_profile("soak"),
        ["h:4161"],
        ["h:4171"],
        {"tls_cert": "/c"},
        "/s",
        False,
        "/f",
    )

    (call,) = [node for node in ast.walk(ast.parse(plan.locustfile())) if isinstance(node, ast.Constant)
               and str(node.value).startswith("{")]  # fmt: skip

    assert Plan.read(call.value) == plan
    assert plan.run_bytes == bytes.fromhex("0011223344556677")
