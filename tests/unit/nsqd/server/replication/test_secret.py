"""The secret for keepers is read again for each connection."""

import pytest

from nsqcore.process.lifecycle import StartupError
from nsqd.server.replication.secret import KeeperSecret


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "secret"
    file.write_text("old\n")
    return file


def test_a_changed_secret_is_the_next_one_that_is_sent(file):
    secret = KeeperSecret(str(file), print)
    assert secret() == b"old"

    file.write_text("new\n")

    assert secret() == b"new"


@pytest.mark.parametrize("spoil", [lambda file: file.unlink(), lambda file: file.write_text("\n")])
def test_a_secret_that_cannot_be_read_any_more_is_told_once_and_the_last_one_is_sent(file, spoil):
    told: list[str] = []
    secret = KeeperSecret(str(file), told.append)

    spoil(file)
    assert (secret(), secret()) == (b"old", b"old")
    assert len(told) == 1
    assert "--keeper-secret-file" in told[0]
    assert told[0].endswith("; the secret that it had before is sent")

    file.write_text("new\n")
    assert secret() == b"new"
    spoil(file)
    assert secret() == b"new"
    assert len(told) == 2


def test_without_a_file_there_is_no_secret():
    assert KeeperSecret("", print)() == b""


def test_a_file_without_a_secret_ends_the_start(file):
    file.write_text(" \n")

    with pytest.raises(StartupError, match="--keeper-secret-file must hold 1 to"):
        KeeperSecret(str(file), print)
