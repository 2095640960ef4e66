"""The program behind `helm test`, run in the same way against real daemons."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.ports import free_port
from tests.support.auth_server import AuthServer, granted
from tests.support.certificates import Authority


def selftest(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nsqtools.selftest", *flags],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_messages_go_through_every_nsqd_and_nothing_stays_behind(cluster):
    lookupd = cluster.nsqlookupd()
    nsqds = [cluster.nsqd(), cluster.nsqd()]

    done = selftest(
        f"--lookupd-http-address={lookupd.http_address}", "--producers=2", "--messages=1200", "--timeout=30"
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("selftest passed: 2400 messages went through 2 nsqd (")
    assert all(nsqd.tcp_address in done.stdout for nsqd in nsqds)
    assert [nsqd.get("/stats?format=json")["topics"] for nsqd in nsqds] == [[], []]


def test_missing_nsqd_is_told_in_one_sentence(cluster):
    lookupd = cluster.nsqlookupd()
    nsqd = cluster.nsqd()

    done = selftest(f"--lookupd-http-address={lookupd.http_address}", "--producers=2", "--timeout=2")

    assert done.returncode == 1
    assert done.stderr == (
        f"selftest failed: nsqlookupd at {lookupd.http_address} did not name 2 nsqd in time;"
        f" it knows 1: {nsqd.tcp_address}\n"
    )


def test_unreachable_lookup_daemon_is_named():
    unused = f"127.0.0.1:{free_port()}"

    done = selftest(f"--lookupd-http-address={unused}", "--timeout=1")

    assert done.returncode == 1
    assert f"nsqlookupd at {unused} did not name 1 nsqd in time; Get " in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_cluster_that_demands_certificates_and_secret_is_tested_with_both(cluster, tmp_path):
    authority = Authority(tmp_path / "authority")
    authority.client_files("tester", tmp_path)
    (tmp_path / "secret").write_text("anna\n")
    with AuthServer(by_secret={"anna": granted()}, answer="no") as server:
        lookupd = cluster.daemon(
            "nsqlookupd",
            ["--broadcast-address=127.0.0.1", "--tls-required", *authority.flags],
            ("tcp", "http", "https"),
        ).start()
        cluster.nsqd(
            *authority.flags,
            "--tls-client-auth-policy=require-verify",
            "--tls-required=tcp-https",
            f"--tls-root-ca-file={authority.file}",
            f"--auth-http-address={server.address}",
            lookupds=[lookupd],
            listeners=("tcp", "http", "https"),
        )
        address = f"--lookupd-http-address=https://127.0.0.1:{lookupd.ports['https']}"
        trust = f"--tls-root-ca-file={authority.file}"

        refused = selftest(address, trust, "--timeout=5")
        assert refused.returncode == 1
        assert "requires authentication, and there is no auth_secret" in refused.stderr

        done = selftest(
            address,
            trust,
            "--tls",
            f"--tls-cert={tmp_path / 'tester.pem'}",
            f"--tls-key={tmp_path / 'tester.key'}",
            f"--auth-secret-file={tmp_path / 'secret'}",
            "--timeout=30",
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("selftest passed: 100 messages went through 1 nsqd (")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--auth-secret-file=secret"], "--auth-secret-file needs --tls or --auth-allow-cleartext"),
        (
            ["--tls", "--auth-secret-file=/no/such"],
            "cannot read the AUTH secret - open /no/such: No such file or directory",
        ),
    ],
)
def test_unusable_secret_is_one_sentence(tmp_path, flags, reason):
    (tmp_path / "secret").write_text("s")
    flags = [flag.replace("=secret", f"={tmp_path / 'secret'}") for flag in flags]
    done = selftest("--lookupd-http-address=127.0.0.1:1", *flags)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"selftest failed: {reason}\n"
