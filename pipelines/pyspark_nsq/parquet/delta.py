"""A Delta table over the files of an archive: each batch is one commit, and is in the table once.

A commit has the number of its batch, so a repeated batch is recognized. Files that a killed task or a
repeated batch has left behind are in no commit, so readers skip them; a compaction removes them a week later.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from pyspark_nsq.parquet.layout import PARTITIONS, partition_values
from pyspark_nsq.source.errors import SourceError


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction: how many files were removed and added."""

    removed: int
    added: int


class DeltaLog:
    """The table at *output*, to which one query adds."""

    def __init__(self, output: str, schema: pa.Schema) -> None:
        self._output = output
        self._schema = Schema.from_arrow(
            schema.append(pa.field("date", pa.date32())).append(pa.field("hour", pa.string()))
        )

    def has(self, query: str, batch: int) -> bool:
        """Tell whether this batch of the query is in the table."""
        table = self._table()
        return table is not None and _has(table, query, batch)

    def commit(self, query: str, batch: int, files: Iterable[tuple[str, int, int]]) -> bool:
        """Add the *files*, each with name, messages and bytes; return False if the batch is there already.

        Raises SourceError.
        """
        now_ms = int(time.time() * 1000)
        actions = [
            AddAction(name, size, partition_values(name), now_ms, True, json.dumps({"numRecords": messages}))
            for name, messages, size in files
        ]
        noted = CommitProperties(app_transactions=[Transaction(query, batch)])
        folders = list(PARTITIONS)
        try:
            table = self._table()
            if table is None:
                create_table_with_add_actions(
                    self._output, self._schema, actions, "error", folders, commit_properties=noted
                )
                return True
            if _has(table, query, batch):
                return False
            table.create_write_transaction(
                [*actions], "append", self._schema, folders, commit_properties=noted
            )
        except DeltaError as error:
            raise SourceError(f"the Delta table {self._output} takes no batch {batch}: {error}") from error
        return True

    def _table(self) -> DeltaTable | None:
        """Return the table, or None if it does not exist. Raises SourceError if it has other columns."""
        if not DeltaTable.is_deltatable(self._output):
            return None
        table = DeltaTable(self._output)
        there, ours = ({field.name for field in one.fields} for one in (table.schema(), self._schema))
        if there != ours:
            raise SourceError(
                f"the Delta table {self._output} was begun {'without' if there < ours else 'with'} "
                f"{', '.join(sorted(there ^ ours))}; continue so, or take a new output"
            )
        return table

    def compact(self) -> Compacted:
        """Merge small files. Readers of an older version of the table still find its files for a week."""
        try:
            table = DeltaTable(self._output)
            done: dict[str, Any] = table.optimize.compact()
            # In full, because files that are in no commit go only then.
            table.vacuum(dry_run=False, full=True)
            table.create_checkpoint()
        except DeltaError as error:
            raise SourceError(f"the Delta table {self._output} cannot be compacted: {error}") from error
        return Compacted(int(done["numFilesRemoved"]), int(done["numFilesAdded"]))


def _has(table: DeltaTable, query: str, batch: int) -> bool:
    last = table.transaction_version(query)
    return last is not None and last >= batch
