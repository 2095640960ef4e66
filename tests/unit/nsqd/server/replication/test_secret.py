"""The file of --cluster-secret-file, read again for each connection."""

import pytest

from nsqcore.process.lifecycle import StartupError
from nsqd.server.replication.options import ClusterSecret

OLD, NEW = b"o" * 32, b"n" * 32


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "secret"
    file.write_bytes(OLD + b"\n")
    return file


def test_cluster_secret_without_file_is_empty():
    assert ClusterSecret("", print)() == ()


def test_cluster_secret_is_rotated_without_restart(file):
    secret = ClusterSecret(str(file), print)
    found = [secret()]

    for content in (OLD + b"\n" + NEW, NEW + b"\n" + OLD, NEW):
        file.write_bytes(content)
        found.append(secret())

    assert found == [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]


def test_cluster_secret_stays_while_its_file_is_unusable(file):
    warnings = []
    secret = ClusterSecret(str(file), warnings.append)

    file.write_bytes(b"short")
    assert [secret(), secret()] == [(OLD,)] * 2
    file.unlink()
    assert secret() == (OLD,)
    file.write_bytes(NEW)
    assert secret() == (NEW,)
    file.write_bytes(b"short")
    assert secret() == (NEW,)

    short = f"--cluster-secret-file {file} is not usable: line 1 has 5 bytes, a secret has at least 32"
    kept = "; the secrets of the last usable file stay in force"
    assert warnings[0] == warnings[2] == short + kept
    assert warnings[1].startswith("failed to read --cluster-secret-file - ")
    assert len(warnings) == 3


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_cluster_secret_file_must_be_usable_at_start(file, content):
    file.unlink()
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(StartupError, match="--cluster-secret-file"):
        ClusterSecret(str(file), print)
