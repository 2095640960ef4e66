"""The sentences of nsq-load when there is no cluster to put load on."""

import socket

import pytest

from load.cli import main


@pytest.fixture
def unused():
    """An address without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{probe.getsockname()[1]}"


def said(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        raise SystemExit(main(["run", *arguments]))
    return end.value.code, capsys.readouterr().err.strip()


def test_unreachable_address_is_no_cluster(capsys, unused):
    code, sentence = said(capsys, "smoke", f"--attach={unused}")

    assert code == 1
    assert (
        sentence
        == f"nsq-load: There is no cluster: no daemon answers at {unused}: [Errno 111] Connection refused."
    )


def test_nsqlookupd_that_knows_no_nsqd_is_no_cluster(capsys, cluster):
    lookupd = cluster.nsqlookupd()

    code, sentence = said(capsys, "smoke", f"--attach={lookupd.http_address}")

    assert code == 1
    assert sentence.endswith(f"nsqlookupd at {lookupd.http_address} knows no nsqd.")


def test_non_nsqlookupd_daemon_is_reported(capsys, cluster):
    nsqd = cluster.nsqd(lookupds=[])

    code, sentence = said(capsys, "smoke", f"--attach={nsqd.http_address}")

    assert code == 1
    assert "answered /nodes with 404: it is no nsqlookupd" in sentence


def test_cluster_whose_nsqd_is_dead_is_no_cluster(capsys, cluster):
    lookupd = cluster.nsqlookupd("--inactive-producer-timeout=10m")
    nsqd = cluster.nsqd()
    lookupd.post(f"/topic/tombstone?topic=x&node={nsqd.http_address}")  # nsqlookupd still lists the node
    nsqd.kill()

    code, sentence = said(capsys, "smoke", f"--attach={lookupd.http_address}")

    assert code == 1
    assert "There is no cluster" in sentence


def test_unknown_release_is_reported_with_where_it_resolves(capsys):
    code, sentence = said(capsys, "smoke", "--helm=demo", "--namespace=m", "--cluster-domain=invalid")

    assert code == 1
    assert sentence.startswith("nsq-load: No name server knows demo-nsq-nsqlookupd-headless.m.svc.invalid")
    assert "makes a Job" in sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["calm", "--start"], "there is no profile calm; there are deferred, "),
        (["none.toml", "--start"], "profile none.toml cannot be read"),
        (["smoke", "--attach=h", "--kill"], "--kill goes with --start"),
        (["smoke"], "one of the arguments --start --attach --helm is required"),
    ],
)
def test_command_line_that_is_no_use_ends_with_2(capsys, arguments, sentence):
    code, said_ = said(capsys, *arguments)

    assert code == 2
    assert sentence in said_
