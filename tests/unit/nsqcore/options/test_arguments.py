"""Programs that the original does not have report a mistake in one sentence."""

import pytest

from nsqcore.options.arguments import Address, ArgumentParser, duration_of


@pytest.fixture
def parser():
    parser = ArgumentParser(prog="prog")
    parser.add_argument("--timeout", type=duration_of)
    parser.add_argument("--http-address", type=Address(4151))
    return parser


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--bogus"], "unrecognized arguments: --bogus; prog --help"),
        (
            ["--http-adress=a"],
            "unrecognized arguments: --http-adress=a; is --http-address meant? prog --help",
        ),
        (
            ["--timeout=5"],
            'argument --timeout: time: missing unit in duration "5"; write 5s (or 5ms, 5m, 5h); prog --help',
        ),
        (
            ["--http-address=host"],
            "argument --http-address: address 'host' is not host:port; is host:4151 meant? prog --help",
        ),
    ],
)
def test_mistake_is_one_sentence_with_guess(parser, argv, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(argv)

    assert ended.value.code == 2
    assert capsys.readouterr().err == f"prog: {sentence} lists all flags\n"


def test_valid_options_are_taken(parser):
    given = parser.parse_args(["--timeout=5s", "--http-address=a:1"])

    assert (given.timeout, given.http_address) == (5_000_000_000, "a:1")
