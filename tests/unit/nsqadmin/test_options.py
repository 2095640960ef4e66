import io

import pytest

from nsqadmin.options import NsqadminOptions
from nsqcore.options.options import parse


def complaint(*argv):
    out = io.StringIO()
    with pytest.raises(SystemExit) as end:
        parse(NsqadminOptions, "nsqadmin", argv, stderr=out)
    return end.value.code, out.getvalue()


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "--nsqd-http-address or --lookupd-http-address required"),
        (
            ["-nsqd-http-address=a:1", "-lookupd-http-address=b:1"],
            "use --nsqd-http-address or --lookupd-http-address not both",
        ),
        (
            ["-nsqd-http-address=a:1", "-http-client-tls-cert=c"],
            "--http-client-tls-key must be specified with --http-client-tls-cert",
        ),
        (
            ["-nsqd-http-address=a:1", "-http-client-tls-key=k"],
            "--http-client-tls-cert must be specified with --http-client-tls-key",
        ),
        (
            ["-nsqd-http-address=a:1", "-trace-url=traces/{trace_id}"],
            "--trace-url must be an http or https address, as https://traces.example/{trace_id} is",
        ),
        (
            ["-nsqd-http-address=a:1", "-trace-url=https://traces/"],
            "--trace-url must have the name of a header in braces, as https://traces.example/{trace_id} is",
        ),
    ],
)
def test_contradictions_end_start_with_one_sentence(argv, sentence):
    code, text = complaint(*argv)

    assert code == 1
    assert text.endswith(f"FATAL: failed to instantiate nsqadmin - {sentence}\n")


def test_repeated_flags_add_up_and_file_uses_its_own_key_names(tmp_path):
    path = tmp_path / "nsqadmin.toml"
    path.write_text('admin_users = ["alice"]\nnsqd_http_addresses = "a:1,b:2"\nstatsd_interval = "30s"\n')

    options = parse(NsqadminOptions, "nsqadmin", ["-config", str(path), "-admin-user", "bob"])

    assert options.nsqd_http_addresses == ("a:1", "b:2")
    assert options.admin_users == ("bob",)
    assert options.statsd_interval == 30_000_000_000


@pytest.mark.parametrize(
    ("given", "prefix"), [("/", ""), ("", ""), ("/nsq/", "/nsq"), ("nsq", "/nsq"), ("//a//b/", "/a/b")]
)
def test_base_path_is_normalised(given, prefix):
    assert NsqadminOptions(base_path=given).prefix == prefix
