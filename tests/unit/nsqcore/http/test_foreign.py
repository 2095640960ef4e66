import pytest

from nsqcore.http.foreign import is_foreign


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://other"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://admin:4171", "Host": "admin:4171"},
        {"Origin": "https://admin.example", "Host": "10.0.0.1:4171", "X-Forwarded-Host": "admin.example"},
    ],
)
def test_programs_and_our_own_pages_may_send_changes(headers):
    assert not is_foreign(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil", "Host": "admin:4171"},
        {"Origin": "http://admin:4171.evil", "Host": "admin:4171"},
        {"Origin": "null", "Host": "admin:4171"},
        {"Origin": ""},
        {"Origin": "http://[", "Host": "admin:4171"},
        {"Origin": "null", "Host": "admin:4171", "X-Forwarded-Host": ""},
    ],
)
def test_page_of_another_site_may_not(headers):
    assert is_foreign(headers)
