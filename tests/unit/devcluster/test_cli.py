"""nsq-cluster refuses bad flags, ports in use and bad folders before it starts anything."""

import socket

import pytest

from devcluster.cli import main
from tests.support.processes import CLUSTER_PORTS, free_port_offset


def test_port_in_use_is_named_with_its_daemon(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        code = main(["--data", str(tmp_path / "data"), "--port-offset", str(port - 4171)])

    assert code == 1
    assert f"port {port} (nsqadmin HTTP)" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--port-offset", "-1"], "--port-offset must be 0.."),
        (["--port-offset", "65000"], "--port-offset must be 0.."),
        (["--rate", "0"], "--rate must be above 0"),
        (["--status-every", "0"], "--status-every must be above 0"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_bad_flag_is_sentence_and_exit_code_two(flags, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        main(flags)

    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_data_folder_that_cannot_be_made_is_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")

    code = main(["--data", str(tmp_path / "file"), "--port-offset", str(free_port_offset(CLUSTER_PORTS))])

    assert code == 1
    assert "cannot prepare the data folder" in capsys.readouterr().err
