"""Certificates that change while they are in use, tested without a server."""

import os
import shutil
import ssl

import pytest
from cryptography.hazmat.primitives import serialization

from nsqcore.process.tls import reason, server_certificates, trust, without_system_authorities
from tests.support.certificates import Authority

LEAST = ssl.TLSVersion.TLSv1_2


@pytest.fixture
def first(tmp_path):
    return Authority(tmp_path / "first")


@pytest.fixture
def second(tmp_path):
    return Authority(tmp_path / "second")


def shown(context):
    """The certificate that a client without any checks is shown."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    near, far = client.wrap_bio(a, b), context.wrap_bio(b, a, server_side=True)
    for _ in range(4):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return near.getpeercert(binary_form=True)


def presented(client, server):
    """The certificate that a client shows to *server*."""
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(a, b, server_hostname="localhost")
    far = server.wrap_bio(b, a, server_side=True)
    for _ in range(4):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return far.getpeercert(binary_form=True)


def test_client_cannot_renegotiate(first):
    # Renegotiating costs a server more than its client. Python's clients cannot, so the option is checked.
    context = server_certificates(str(first.certificate), str(first.key), LEAST).context

    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_files_that_did_not_change_are_not_loaded_again(first):
    certificates = server_certificates(str(first.certificate), str(first.key), LEAST)

    assert certificates.refresh() is False


def test_renewed_certificate_is_served(first, second):
    certificates = server_certificates(str(first.certificate), str(first.key), LEAST)
    before = shown(certificates.context)
    shutil.copy(second.certificate, first.certificate)
    shutil.copy(second.key, first.key)

    assert certificates.refresh() is True
    assert shown(certificates.context) != before
    assert certificates.refresh() is False


def test_secret_that_is_exchanged_by_moving_link_is_noticed(tmp_path, first, second):
    link = tmp_path / "mounted"
    link.symlink_to(first.certificate.parent)
    certificates = server_certificates(str(link / "server.pem"), str(link / "server.key"), LEAST)
    before = shown(certificates.context)
    moved = tmp_path / "new"
    moved.symlink_to(second.certificate.parent)
    moved.rename(link)

    assert certificates.refresh() is True
    assert shown(certificates.context) != before


@pytest.mark.parametrize("damage", ["other key", "other certificate", "garbage", "gone"])
def test_invalid_certificate_is_reported_and_old_one_stays(first, second, damage):
    certificates = server_certificates(str(first.certificate), str(first.key), LEAST)
    before = shown(certificates.context)
    if damage == "other key":
        shutil.copy(second.key, first.key)
    elif damage == "other certificate":
        # The two files are replaced one after the other, in either order.
        shutil.copy(second.certificate, first.certificate)
    elif damage == "garbage":
        first.certificate.write_text("garbage")
    else:
        first.certificate.unlink()

    for _ in range(2):
        with pytest.raises((OSError, ValueError)):
            certificates.refresh()
    assert shown(certificates.context) == before


def test_authority_that_is_added_is_believed(first, second):
    believed = trust(str(first.file))
    assert len(believed.context.get_ca_certs()) == 1
    first.file.write_bytes(first.file.read_bytes() + second.file.read_bytes())

    assert believed.refresh() is True
    assert len(believed.context.get_ca_certs()) == 2


def test_renewed_client_certificate_is_shown(tmp_path, first):
    server = server_certificates(
        str(first.certificate), str(first.key), LEAST, verify_clients=True, authorities=str(first.file)
    ).context
    for name in ("old", "new"):
        first.client_files(name, tmp_path)
    client = trust(str(first.file), certificate=str(tmp_path / "old.pem"), key=str(tmp_path / "old.key"))
    before = presented(client.context, server)
    for ending in (".pem", ".key"):
        shutil.copy(tmp_path / f"new{ending}", tmp_path / f"old{ending}")

    assert client.refresh() is True
    assert presented(client.context, server) != before


def test_file_that_cannot_be_used_is_named(tmp_path, first, second):
    empty, encrypted = tmp_path / "empty", tmp_path / "encrypted"
    empty.touch()
    key = serialization.load_pem_private_key(first.key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"word")
    encrypted.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    )
    cert, key_file = f"{first.certificate}", f"{first.key}"
    sentences = {
        (cert, f"{second.key}"): (
            f"tls: the private key in {second.key} does not match the certificate in {cert}"
        ),
        (cert, f"{encrypted}"): f"tls: the private key in {encrypted} is encrypted, which is not supported",
        (cert, f"{empty}"): f"tls: {empty} contains no private key in PEM",
        (cert, cert): f"tls: {cert} contains no private key in PEM",
        (f"{empty}", key_file): f"tls: {empty} contains no certificate in PEM",
        (key_file, key_file): f"tls: {key_file} contains no certificate in PEM",
        (cert, ""): "open : no such file or directory",
        (cert, f"{tmp_path}"): f"open {tmp_path}: is a directory",
        (f"{tmp_path / 'gone'}", key_file): f"open {tmp_path / 'gone'}: no such file or directory",
    }

    for (shown_one, its_key), sentence in sentences.items():
        for make in (
            lambda c, k: server_certificates(c, k, LEAST),
            lambda c, k: trust("", certificate=c, key=k),
        ):
            with pytest.raises((OSError, ValueError)) as caught:
                make(shown_one, its_key)
            assert reason(caught.value) == sentence


def test_import_without_system_authorities_leaves_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/chosen.pem")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)

    with without_system_authorities():
        assert ssl.create_default_context().cert_store_stats()["x509_ca"] == 0

    assert os.environ["SSL_CERT_FILE"] == "/chosen.pem"
    assert "SSL_CERT_DIR" not in os.environ
