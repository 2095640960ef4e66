"""The verdict on a node that grows names what grew; a node that does not grow is not named."""

from dataclasses import replace

import pytest

from bench.load import LoadError
from bench.soak import Sample, growth, main

STEADY = Sample(0.0, 60.0, 40, 20.0, 100.0, 0, 0)


def run_of(count, **slopes):
    """*count* samples; each value named in *slopes* grows by its slope from sample to sample."""
    return [
        replace(STEADY, **{name: getattr(STEADY, name) + slope * n for name, slope in slopes.items()})
        for n in range(count)
    ]


def test_what_goes_up_and_down_has_not_grown():
    waves = [replace(STEADY, disk=20.0 + 15 * (n % 3), descriptors=40 + n % 5) for n in range(30)]

    assert growth(waves) == []


@pytest.mark.parametrize(
    ("name", "slope"), [("memory", 0.2), ("descriptors", 1), ("disk", 1.0), ("cpu", 2.0)]
)
def test_what_grows_with_time_is_named(name, slope):
    assert [text.split()[0] for text in growth(run_of(30, **{name: slope}))] == [name]


def test_what_is_filled_at_the_beginning_has_not_grown():
    assert growth([replace(STEADY, memory=40.0), *run_of(29)]) == []


def test_too_few_samples_are_no_verdict():
    assert growth(run_of(3)) == []
    with pytest.raises(LoadError, match="2 samples are too few to tell whether anything grew"):
        growth(run_of(2))


@pytest.mark.parametrize("given", [["--seconds=3", "--every=1"], ["--every=0"], ["--every=-1"]])
def test_a_run_that_would_have_too_few_samples_is_not_begun(capsys, given):
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert "--seconds must be at least 4 times --every, and --every above 0" in capsys.readouterr().err


@pytest.mark.slow
def test_a_short_run_finishes_every_message(capsys, tmp_path):
    main(["--seconds", "4", "--every", "1", "--data-root", str(tmp_path)])

    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    published, finished = (int(cell.replace(",", "")) for cell in rows[-1].strip("| ").split(" | ")[-2:])
    assert finished >= published > 0
