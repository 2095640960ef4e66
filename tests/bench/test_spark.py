"""The bench of the archive: what it publishes, and that it still fits the rest of the bench and the job."""

import json

import pytest

from bench import spark


def test_bodies_are_json_of_one_size_and_differ():
    bodies = spark.json_bodies(200, 50)

    assert {len(body) for body in bodies} == {200}
    assert len(set(bodies)) == 50
    assert json.loads(bodies[7])["order"] == 7


def test_two_nsqds_can_be_filled_and_read(tmp_path, capsys):
    with spark.Program("nsqd", spark.OURS, str(tmp_path)).serving() as server:
        spark.publish(server, "t", 4000, 200)
        spark.profile(spark.Bench(None, [server], tmp_path), "t")

    assert "One worker by itself, 4000 messages" in capsys.readouterr().out


def test_a_row_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit):
        spark.main(["--rows=nothing"])

    assert "there are: worker, rows, table, table-ours, json, parquet" in capsys.readouterr().err
