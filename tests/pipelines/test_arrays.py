"""Arrays made without pandas: they equal those that Arrow makes, and making them does not load pandas."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pyspark_nsq.source.arrays import equally_long, flags, numbers, repeated, values_of

ROOT = Path(__file__).parents[2]


def test_arrays_equal_those_of_arrow():
    values = np.arange(10, dtype=np.int64)[::3]
    assert numbers(values, pa.int64()).equals(pa.array([0, 3, 6, 9]))
    assert numbers(values, pa.timestamp("us", tz="UTC")).type == pa.timestamp("us", tz="UTC")
    assert numbers(values[:0], pa.int64()).equals(pa.array([], pa.int64()))
    whole = numbers(np.arange(10), pa.int64())
    assert values_of(whole.slice(3, 4), np.int64).tolist() == [3, 4, 5, 6]
    assert values_of(whole, np.int64).tolist() == list(range(10))
    assert equally_long(b"abcd", 2, 2, pa.string()).to_pylist() == ["ab", "cd"]
    for count in (0, 1, 7, 8, 9, 100):
        truths = np.arange(count) % 3 == 0
        assert flags(truths).to_pylist() == truths.tolist()
        for value, kind in (("ü", pa.string()), ("", pa.string()), (b"", pa.binary())):
            found = repeated(value, count, kind)
            found.validate(full=True)
            assert found.equals(pa.array([value] * count, kind))
            assert repeated(None, count, kind).null_count == count


WORKER = """
import sys
from pathlib import Path
from nsqclient.wire.frames import FRAME_MESSAGE, encode_frame
from nsqclient.wire.message import MessageRecord
from pyspark.sql.types import LongType, StringType, StructType, TimestampType
from pyspark_nsq.parquet.storage import FolderStorage
from pyspark_nsq.parquet.range_files import RangeFiles
from pyspark_nsq.parquet.reader import _row
from pyspark_nsq.source.columns import MessageColumns, Origin
from pyspark_nsq.source.frames import decode_frames
from pyspark_nsq.source.json_columns import JsonColumns
from pyspark_nsq.source.planner import LogRange
from pyspark_nsq.source.window import Interval, TimeInterval

hour = 3_600_000_000_000
bodies = [b'{"a": 1}', b"no json", b'{"a": 2}']
frames = b"".join(
    encode_frame(FRAME_MESSAGE, MessageRecord(n * hour, 1, b"%016x" % n, body).encode())
    for n, body in enumerate(bodies)
)
messages, origin = decode_frames(frames), Origin("t", "c", "n:1")
(batch,) = MessageColumns().batches(messages, origin)
with RangeFiles(FolderStorage(Path(sys.argv[1])), LogRange("n:1", 0, 3)) as files:
    written = [*files.write(batch), *files.finish()]
assert len(written) == 3 and all(_row(one).num_rows for one in written)
schema = StructType().add("a", LongType()).add("timestamp", TimestampType())
schema = schema.add("_corrupt_record", StringType())
(json,) = JsonColumns(schema).batches(messages, origin)
(part,) = TimeInterval(MessageColumns(), Interval(0, 3)).batches(messages, origin)
print(json.num_rows, "pandas" in sys.modules)
"""


ASKED = """
import sys
import pyspark.sql.worker.create_data_source
from pyspark_nsq import DefaultSource
from pyspark_nsq.parquet.source import NsqParquetSource

options = {"nsqdHttpAddresses": "n:1", "topic": "t", "channel": "c"}
print(len(DefaultSource(options).schema()), len(NsqParquetSource({**options, "output": "x"}).schema()))
print({"numpy", "pyarrow", "pandas", "ssl"} & sys.modules.keys())
"""


# Spark 4.1 lacks this module.
OLD_SPARK = """
import sys
import pyspark.sql.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
from pyspark_nsq import DefaultSource

source = DefaultSource({"nsqdHttpAddresses": "n:1", "topic": "t", "channel": "c"})
print(type(source.reader(source.schema())).__name__)
try:
    source.streamReader(source.schema()).initialOffset()
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("program", "output"),
    [
        (ASKED, "8 4\nset()\n"),
        (WORKER, "3 False\n"),
        (
            OLD_SPARK,
            "NsqBatchReader\n[NSQ_INVALID_OPTION] a stream needs Spark 4.2 or newer, and this is Spark 4.",
        ),
    ],
    ids=["schema without numpy and ssl", "worker without pandas", "old Spark without streams"],
)
def test_process_of_spark_loads_only_what_it_uses(tmp_path, program, output):
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((f"{ROOT}/client", f"{ROOT}/pipelines"))},
    )

    assert done.stdout.startswith(output), done.stderr
    assert done.stderr == ""
