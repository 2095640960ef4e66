import hashlib
import os

import pytest

from nsqadmin.access.roles import Role
from nsqadmin.access.tokens import TokenFile, parse_tokens


def line(name, secret, role="operator", *topics):
    return " ".join([name, role, hashlib.sha256(secret.encode()).hexdigest(), *topics])


def test_token_is_known_by_its_digest():
    first, second = parse_tokens(
        f"# who\n{line('ci', 'one')}\n\n{line('pay', 'two', 'admin', 'pay*')}  # note\n"
    )

    assert (first.grant.name, first.grant.role, first.grant.topics) == ("ci", Role.OPERATOR, "*")
    assert (second.grant.role, second.grant.topics) == (Role.ADMIN, "pay*")


@pytest.mark.parametrize(
    "text", ["ci operator", "ci operator 12", "ci boss " + "0" * 64, "ci admin secret x y"]
)
def test_invalid_line_is_named(text):
    with pytest.raises(ValueError, match="line 2 is not NAME ROLE SHA256"):
        parse_tokens(f"\n{text}")


def test_token_that_is_taken_out_of_file_ends(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(line("ci", "one") + "\n" + line("other", "two"))
    tokens = TokenFile(str(path))
    assert (tokens.named("one"), tokens.named("two"), tokens.named("three")) == ("ci", "other", "")

    path.write_text(line("ci", "one"))
    os.utime(path, ns=(1, 1))

    assert (tokens.named("one"), tokens.named("two")) == ("ci", "")


def test_tokens_without_file_are_empty():
    assert TokenFile("").tokens == []
