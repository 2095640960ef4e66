import io
import os

import pytest

from nsqadmin.access.session_secret import SessionSecret
from nsqcore.process.logs import Log, LogLevel


@pytest.fixture
def text():
    return io.StringIO()


@pytest.fixture
def log(text):
    return Log("", LogLevel.INFO, text)


def test_secret_is_that_of_file_as_it_is_now(tmp_path, log):
    file = tmp_path / "secret"
    file.write_bytes(b"a" * 32 + b"\n")
    secret = SessionSecret(str(file), log)
    assert secret() == b"a" * 32

    file.write_bytes(b"b" * 33)

    assert secret() == b"b" * 33


def test_unusable_file_keeps_old_secret_and_is_logged_once(tmp_path, log, text):
    file = tmp_path / "secret"
    file.write_bytes(b"a" * 32)
    secret = SessionSecret(str(file), log)

    file.write_bytes(b"short")
    assert {secret(), secret()} == {b"a" * 32}
    file.unlink()
    assert {secret(), secret()} == {b"a" * 32}

    lines = text.getvalue().splitlines()
    assert [line.partition(f"({file}) - ")[2] for line in lines] == [
        "the secret has to have 32 bytes or more; the old secret is used on",
        "No such file or directory; the old secret is used on",
    ]


def test_file_that_cannot_be_used_at_start_is_refused(tmp_path, log):
    file = tmp_path / "secret"
    with pytest.raises(FileNotFoundError):
        SessionSecret(str(file), log)

    file.touch()
    os.utime(file, ns=(0, 0))
    with pytest.raises(ValueError, match="32 bytes or more"):
        SessionSecret(str(file), log)
    file.write_bytes(b" " * 40)
    with pytest.raises(ValueError, match="32 bytes or more"):
        SessionSecret(str(file), log)
