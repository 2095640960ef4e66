"""The cluster secret and the proof of it."""

import pytest

from nsqd.replication.handshake import ACCEPTOR, CONNECTOR, is_proof, parse_secrets, proof

OLD, NEW = b"o" * 32, b"n" * 40
PARTS = (CONNECTOR, b"hello of the connector", b"hello of the acceptor", b"h" * 32)


def test_secrets_are_the_lines_of_the_file():
    assert parse_secrets(NEW + b"\n\n  " + OLD + b" \r\n") == (NEW, OLD)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it has no secret"),
        (b" \n\n", "it has no secret"),
        (b"s" * 31, "line 1 has 31 bytes, a secret has at least 32"),
        (OLD + b"\n\nshort\n", "line 3 has 5 bytes"),
        (b" " * 20 + b"s" * 31, "line 1 has 31 bytes"),
    ],
)
def test_secret_file_without_usable_secrets_is_refused(content, problem):
    with pytest.raises(ValueError, match=problem):
        parse_secrets(content)


def test_proof_is_the_hmac_that_the_design_names():
    # From openssl dgst -sha256 -hmac, over the five parts with their lengths.
    assert proof(OLD, *PARTS).hex() == "9419d39029dc64b678d999b80783565e0772b77631a34dc5f43235447c38ecc2"


def test_proof_fits_each_of_several_secrets():
    for secrets in ((OLD,), (NEW, OLD), (OLD, NEW)):
        assert is_proof(secrets, *PARTS, proof(OLD, *PARTS))


def test_proof_fits_no_other_secret():
    assert not is_proof((NEW,), *PARTS, proof(OLD, *PARTS))
    assert not is_proof((), *PARTS, proof(OLD, *PARTS))


@pytest.mark.parametrize(
    "other",
    [
        (ACCEPTOR, *PARTS[1:]),
        (CONNECTOR, PARTS[2], PARTS[1], PARTS[3]),
        (*PARTS[:3], b"i" * 32),
        (*PARTS[:3], b""),
        (CONNECTOR, PARTS[1] + PARTS[2], b"", PARTS[3]),
        (CONNECTOR, PARTS[1][:-1], PARTS[1][-1:] + PARTS[2], PARTS[3]),
        (CONNECTOR, PARTS[1], PARTS[2] + PARTS[3], b""),
    ],
)
def test_proof_fits_no_other_parts(other):
    assert not is_proof((OLD,), *other, proof(OLD, *PARTS))


@pytest.mark.parametrize("mac", [b"", b"x", bytes(32), bytes(64)])
def test_proof_of_any_size_is_compared(mac):
    assert not is_proof((OLD,), *PARTS, mac)
