"""How nsqadmin starts, refuses to start, and stops."""

import re
import ssl

import pytest

from bench.ports import free_port
from nsqadmin.daemon import _check_graphite, _trusted
from nsqadmin.options import NsqadminOptions
from nsqcore.process.lifecycle import StartupError
from tests.support import beside
from tests.support.site import ask
from tests.support.waiting import wait_until

NO_PORT = "address nohost: missing port in address; is nohost:4161 meant?"
URL = "address http://a:1: too many colons in address; is a:1 meant?"
NSQD = "--nsqd-http-address=127.0.0.1:4151"


def refusal(cluster, *flags):
    """Return exit code and last line of an nsqadmin that must not start."""
    daemon = cluster.daemon("nsqadmin", list(flags), listeners=("http",)).spawn()
    code = daemon.wait()
    return code, daemon.logs().splitlines()[-1].partition("FATAL: ")[2]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "--nsqd-http-address or --lookupd-http-address required"),
        (
            ["--lookupd-http-address=nohost"],
            "failed to resolve --lookupd-http-address (nohost) - " + NO_PORT,
        ),
        (
            ["--nsqd-http-address=http://a:1"],
            "failed to resolve --nsqd-http-address (http://a:1) - " + URL,
        ),
        (
            [NSQD, "--allow-config-from-cidr=foo"],
            "failed to parse --allow-config-from-cidr (foo) - invalid CIDR address: foo",
        ),
        (
            [NSQD, "--http-client-tls-root-ca-file=/nonexistent"],
            "failed to read TLS root CA file /nonexistent - open /nonexistent: no such file or directory",
        ),
        (
            [NSQD, "--http-client-tls-root-ca-file=/dev/null"],
            "failed to AppendCertsFromPEM /dev/null",
        ),
        (
            [NSQD, "--http-client-tls-cert=/gone", "--http-client-tls-key=/gone"],
            "failed to LoadX509KeyPair /gone, /gone - open /gone: no such file or directory",
        ),
    ],
)
def test_invalid_settings_end_start_with_one_sentence(cluster, flags, sentence):
    code, said = refusal(cluster, *flags)
    if not beside.OURS:  # the original adds no guess of what was meant
        said += sentence[len(said.removeprefix("failed to instantiate nsqadmin - ")) :]

    assert (code, said) == (1, f"failed to instantiate nsqadmin - {sentence}")


def test_unknown_host_is_logged_and_does_not_prevent_start(cluster):
    lookupd = cluster.nsqlookupd()
    lookupd.post("/topic/create?topic=t")
    admin = cluster.nsqadmin(
        "--lookupd-http-address=no-such-host.invalid:4161", f"--lookupd-http-address={lookupd.http_address}"
    )

    warning = "WARNING: failed to resolve --lookupd-http-address (no-such-host.invalid:4161) - "
    wait_until(lambda: warning in admin.logs(), "the log names the host")
    page = ask(admin, "GET", "/api/topics")
    assert page.status == 200
    assert b'"t"' in page.body
    assert b"no such host" in page.body


def test_nsqadmin_logs_version_and_address_and_stops_cleanly(cluster):
    admin = cluster.nsqadmin(NSQD, "--log-prefix=[adm] ")

    assert ask(admin, "GET", "/ping").body == b"OK"
    assert admin.stop() == 0
    first, second = admin.logs().splitlines()[:2]
    assert first.startswith("[adm] ")
    assert "INFO: nsqadmin v1.3.0 (built w/nsq-cluster-" in first
    assert second.endswith(f"INFO: HTTP: listening on {admin.http_address}")


def test_tls_verification_is_skipped_only_by_option():
    careless = NsqadminOptions(http_client_tls_insecure_skip_verify=True)

    assert _trusted(NsqadminOptions()).context.verify_mode == ssl.CERT_REQUIRED
    assert _trusted(careless).context.verify_mode == ssl.CERT_NONE


def test_nsqadmin_starts_while_cluster_is_down(cluster):
    admin = cluster.nsqadmin(f"--lookupd-http-address=127.0.0.1:{free_port()}")

    assert ask(admin, "GET", "/").status == 502
    assert ask(admin, "GET", "/ping").status == 200


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://x:port"])
def test_graphite_proxy_needs_usable_address(url):
    with pytest.raises(StartupError, match=re.escape(f"failed to parse --graphite-url ({url}) - ")):
        _check_graphite(url)
