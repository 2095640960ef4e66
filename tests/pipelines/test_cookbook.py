"""The files of the cookbook run as they are, and do what their first line says."""

import json
import runpy
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from tests.pipelines.conftest import depth

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

COOKBOOK = Path(__file__).parents[2] / "pipelines" / "cookbook"
ORDERS = [{"customer": n % 3, "order": n, "price": 50.0 * n} for n in range(6)]


@pytest.fixture
def orders(nodes, topic):
    """Three orders on each nsqd."""
    for number, nsqd in enumerate(nodes.nsqds):
        nodes.publish(nsqd, topic, *(json.dumps(one).encode() for one in ORDERS[number::2]))
    return topic


@pytest.fixture
def cook(spark, nodes, tmp_path, monkeypatch):
    """Run a file of the cookbook in the session of the tests."""

    def run(name, *topics, more=()):
        monkeypatch.setattr(sys, "argv", [name, nodes.lookupd.http_address, *topics, str(tmp_path), *more])
        runpy.run_path(str(COOKBOOK / name), run_name="__main__")
        return tmp_path

    return run


def rows(folder):
    return ds.dataset(folder, format="parquet").to_table().to_pylist()


def test_json_becomes_columns_of_table(cook, nodes, orders, capsys):
    folder = cook("json_to_columns.py", orders)

    assert sorted((row["customer"], row["price"]) for row in rows(folder / "table")) == sorted(
        (one["customer"], one["price"]) for one in ORDERS
    )
    assert [depth(nsqd, orders, "table") for nsqd in nodes.nsqds] == [0, 0]
    assert "spent" in capsys.readouterr().out


def test_finished_messages_of_a_day_are_read_while_policy_retains_them(cook, nodes, orders, capsys):
    policy = json.dumps({"topic": f"^{orders}$", "definition": {"retain_time": "2d"}}).encode()
    for nsqd in nodes.nsqds:
        assert nsqd.request("PUT", f"/policies?name={orders}", policy)[0] == 200
        nsqd.post(f"/channel/create?topic={orders}&channel=done&start=earliest")
        nsqd.post(f"/message/finish?topic={orders}&channel=done&all=true")
        assert depth(nsqd, orders, "done") == 0
    today = datetime.now(UTC).date()
    folder = cook("yesterday.py", orders, more=(str(today),))
    cook("yesterday.py", orders)

    assert {json.loads(row["body"])["order"] for row in rows(folder / str(today))} == set(range(6))
    assert f"0 messages of {today - timedelta(days=1)}" in capsys.readouterr().out


def test_each_minute_has_its_orders(cook, spark, orders):
    cook("windows.py", orders)
    (found,) = spark.sql("SELECT sum(orders), sum(value) FROM minutes").collect()

    assert tuple(found) == (6, 750.0)


def test_orders_are_joined_with_their_payments(cook, nodes, orders):
    payments = f"{orders}-payments"
    nodes.publish(nodes.nsqds[0], payments, b'{"order": 2, "paid": 100}', b'{"order": 77, "paid": 1}')
    folder = cook("join.py", orders, payments)

    assert rows(folder / "paid") == [{"order": 2, "customer": 2, "paid": 100.0}]


def test_database_has_every_order_once_after_full_replay(cook, orders):
    folder = cook("into_a_database.py", orders)
    # As if Spark had not noted that the last batch was stored.
    for path in (folder / "checkpoint" / "commits").iterdir():
        path.unlink()
    cook("into_a_database.py", orders)
    with sqlite3.connect(folder / "orders.db") as connection:
        found = connection.execute("SELECT customer, price FROM orders").fetchall()
    connection.close()

    assert sorted(found) == sorted((one["customer"], one["price"]) for one in ORDERS)


def test_delta_table_has_every_order_once_though_the_last_batch_comes_again(cook, nodes, orders):
    folder = cook("into_delta.py", orders)
    nodes.publish(nodes.nsqds[0], orders, b'{"customer": 9, "price": 1}')
    cook("into_delta.py", orders)
    # As if Spark had not noted that the last batch was stored.
    for path in (folder / "checkpoint" / "commits").glob("*1*"):
        path.unlink()
    cook("into_delta.py", orders)
    found = DeltaTable(folder / "delta").to_pyarrow_table().to_pylist()

    assert sorted((row["customer"], row["price"]) for row in found) == sorted(
        [*((one["customer"], one["price"]) for one in ORDERS), (9, 1.0)]
    )
    assert len(DeltaTable(folder / "delta").history()) == 2


def test_large_orders_are_written_to_topic_of_their_own(cook, nodes, spark, orders):
    cook("write_back.py", orders, f"{orders}-large")
    for nsqd in nodes.nsqds:
        if any(one["topic_name"] == f"{orders}-large" for one in nsqd.get("/stats?format=json")["topics"]):
            nodes.listed(nsqd, f"{orders}-large")
    found = spark.read.format("nsq").options(**nodes.options(f"{orders}-large", channel="")).load()

    assert sorted(json.loads(row.body)["price"] for row in found.collect()) == [150.0, 200.0, 250.0]


def test_bodies_that_are_no_such_json_are_kept_apart(cook, nodes, orders):
    nodes.publish(nodes.nsqds[0], orders, b"not json")
    folder = cook("dead_letters.py", orders)

    assert len(rows(folder / "orders")) == 6
    (letter,) = rows(folder / "dead_letters")
    assert (letter["_corrupt_record"], letter["nsqd"]) == ("not json", nodes.nsqds[0].http_address)


def test_lag_of_each_batch_is_reported(cook, orders, capsys):
    cook("lag.py", orders, more=["4"])
    said = capsys.readouterr().out

    assert "batch 0: 2 messages behind, " in said
    assert "batch 1: 0 messages behind, " in said
