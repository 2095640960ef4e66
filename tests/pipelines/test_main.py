"""nsq-spark: the jobs by their names."""

import pytest

from pyspark_nsq.jobs.main import JOBS, main


def test_jobs_are_listed(capsys):
    assert main(["--help"]) == 0
    said = capsys.readouterr().out

    assert all(name in said for name in JOBS)


def test_unknown_job_is_named(capsys):
    assert main(["achive"]) == 2
    assert "there is no job 'achive'; there are: archive, stats, replay, package" in capsys.readouterr().err


@pytest.mark.parametrize("job", JOBS)
def test_each_job_has_its_help(job, capsys):
    with pytest.raises(SystemExit) as caught:
        main([job, "--help"])

    assert caught.value.code == 0
    assert "usage:" in capsys.readouterr().out
