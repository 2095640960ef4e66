import pytest

from nsqcore.cluster.secret import NO_SECRET, SecretFile


def test_secret_is_text_of_file_without_line_end(tmp_path):
    path = tmp_path / "secret"
    path.write_text("s3cret\n")

    assert SecretFile(str(path)).headers() == {"Authorization": "Bearer s3cret"}


def test_secret_that_was_changed_is_used_from_then_on(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old")
    secret = SecretFile(str(path))
    assert secret.read() == "old"

    path.write_text("new")

    assert secret.read() == "new"


def test_missing_secret_file_sends_no_header():
    assert NO_SECRET.headers() == {}


@pytest.mark.parametrize("content", ["", " \n", "a\nb"])
def test_file_that_holds_no_secret_is_refused(tmp_path, content):
    path = tmp_path / "secret"
    path.write_text(content)

    with pytest.raises(ValueError, match="it is empty or has several lines"):
        SecretFile(str(path)).read()


def test_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match="open /no/such/file: No such file or directory"):
        SecretFile("/no/such/file").read()


def test_sentence_says_which_secret_it_is():
    with pytest.raises(OSError, match=r"^cannot read the AUTH secret - open "):
        SecretFile("/no/such/file").read()
    with pytest.raises(OSError, match=r"^cannot read the secret of the client - open "):
        SecretFile("/no/such/file", "the secret of the client").read()
