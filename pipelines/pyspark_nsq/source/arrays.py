"""Makes Arrow arrays from values that are already in memory. Pure.

``pa.array`` and ``pa.scalar`` check whether they were given an object of pandas, and load pandas for that.
Each Python worker would spend a third of a second on a library that nothing here needs.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: npt.NDArray[Any], kind: Any) -> Any:
    """Return an array of *kind* that has the bytes of *values*."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def values_of(array: Any, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the values of an array of numbers without nulls, without copying them."""
    found = np.frombuffer(array.buffers()[1], kind)
    return found[array.offset : array.offset + len(array)]


def flags(values: npt.NDArray[np.bool_]) -> Any:
    """Return an array of truth values."""
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def repeated(value: str | bytes | None, count: int, kind: Any) -> Any:
    """Return an array with the same text or bytes in every row."""
    if value is None:
        return pa.nulls(count, kind)
    one = value.encode() if isinstance(value, str) else value
    return equally_long(one * count, len(one), count, kind)


def equally_long(values: bytes, length: int, count: int, kind: Any) -> Any:
    """Return an array of texts or bytes of one *length*, which follow one another in *values*."""
    cuts = (
        np.arange(0, (count + 1) * length, length, dtype=np.int32)
        if length
        else np.zeros(count + 1, np.int32)
    )
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(cuts), pa.py_buffer(values)])
