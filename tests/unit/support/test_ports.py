"""A port of a test is given to no other test."""

import subprocess
import sys

from bench.ports import free_port, reserve
from load.ports import is_free

ELSEWHERE = "import sys; from bench.ports import reserve; print(reserve(int(sys.argv[1])))"


def reserved_elsewhere(port):
    """Whether another process, which ends at once, can reserve the port."""
    return subprocess.check_output([sys.executable, "-c", ELSEWHERE, str(port)], text=True) == "True\n"


def test_a_port_is_given_once_although_nobody_listens_there():
    ports = [free_port() for _ in range(200)]

    assert len(set(ports)) == 200
    assert is_free(ports[0])
    assert not reserve(ports[0])


def test_no_other_process_gets_a_port_before_this_one_ends():
    port = free_port()

    assert not reserved_elsewhere(port)


def test_a_port_of_a_process_that_has_ended_can_be_reserved():
    port = next(port for port in range(9000, 10_000) if reserved_elsewhere(port))

    assert reserve(port)
