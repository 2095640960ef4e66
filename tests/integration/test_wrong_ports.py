"""The port of another daemon, or the other port of the right one, is recognised and named."""

import pytest

from nsqclient import Consumer
from tests.support.tools import run_tool
from tests.support.waiting import eventually, wait_until


@pytest.mark.parametrize(
    ("daemon", "kind", "said"),
    [
        ("nsqlookupd", "http_address", "this is an HTTP port, nsqlookupd's TCP port is 4160 by default"),
        ("nsqd", "http_address", "this is an HTTP port, nsqlookupd's TCP port is 4160 by default"),
        ("nsqd", "tcp_address", "this is the TCP port of an nsqd, nsqlookupd's is 4160 by default"),
    ],
)
def test_nsqd_names_daemon_found_in_place_of_nsqlookupd(cluster, daemon, kind, said):
    address = getattr(getattr(cluster, daemon)(), kind)

    nsqd = cluster.nsqd(f"--lookupd-tcp-address={address}")

    wait_until(lambda: said in nsqd.logs(), "the log says so")


WRONG = [("nsqd", "nsqd"), ("nsqlookupd", "lookupd"), ("nsqd", "lookupd")]


@pytest.mark.parametrize(("daemon", "flag"), WRONG)
def test_nsqadmin_says_that_it_was_given_tcp_port(cluster, daemon, flag):
    address = getattr(cluster, daemon)().tcp_address

    admin = cluster.nsqadmin(f"--{flag}-http-address={address}")

    said = "no answer in HTTP; is it a TCP port? HTTP is on 4151 (nsqd) and 4161 (nsqlookupd) by default"
    wait_until(lambda: said in admin.logs(), "the log says so")


def test_nsq_stat_says_that_it_was_given_tcp_port(cluster):
    address = cluster.nsqd().tcp_address

    ended = run_tool("nsq_stat", "-topic=t", "-channel=c", "-count=1", f"-nsqd-http-address={address}")

    assert ended.returncode == 1
    assert b"no answer in HTTP; is it a TCP port?" in ended.stderr


async def test_consumer_says_that_nsqd_is_no_nsqlookupd(cluster, caplog):
    address = cluster.nsqd().http_address

    async with Consumer("t", "c", lambda _: None, lookupd_addresses=[address]):
        said = "there is no /lookup; nsqlookupd's HTTP port is 4161 by default"
        await eventually(lambda: said in caplog.text, "the log says so")


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--tcp-address=4150", "127.0.0.1:4150"),
        ("--tcp-address=127.0.0.1", "127.0.0.1:4150"),
        ("--http-address=http://127.0.0.1:4151", "127.0.0.1:4151"),
        ("--http-address=localhost", "localhost:4151"),
        ("--lookupd-tcp-address=http://lookupd:4160", "lookupd:4160"),
        ("--lookupd-tcp-address=lookupd", "lookupd:4160"),
    ],
)
def test_address_that_is_none_is_refused_with_guess(cluster, flag, meant):
    nsqd = cluster.daemon("nsqd", [flag])

    assert nsqd.spawn().wait() == 1
    assert nsqd.logs().endswith(f"; is {meant} meant?\n")
    assert sorted(path.name for path in nsqd.folder.iterdir()) == ["nsqd.log"]  # no socket was made
