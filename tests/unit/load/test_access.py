"""Where the load generator sends the AUTH secret."""

import pytest

from load.connection import Access


@pytest.mark.parametrize(
    ("allow_cleartext", "encrypted", "is_sent"),
    [(False, False, False), (False, True, True), (True, False, True), (True, True, True)],
)
def test_secret_is_sent_encrypted_or_with_permission(allow_cleartext, encrypted, is_sent):
    access = Access(auth_secret="s", allow_cleartext=allow_cleartext)

    assert access.headers(encrypted=encrypted) == ({"Authorization": "Bearer s"} if is_sent else {})
    assert Access(allow_cleartext=allow_cleartext).headers(encrypted=encrypted) == {}
