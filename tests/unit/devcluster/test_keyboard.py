"""The Enter key, on a pipe, on a terminal and without a keyboard."""

import asyncio
import os

import pytest

from devcluster.keyboard import Keyboard
from tests.support.waiting import eventually


@pytest.fixture(params=[os.pipe, os.openpty], ids=["pipe", "terminal"])
def ends(request):
    """The end that the keyboard reads and the end that a person types into."""
    first, second = request.param()
    reader, writer = (first, second) if request.param is os.pipe else (second, first)
    yield reader, writer
    for descriptor in (reader, writer):
        os.close(descriptor)


async def test_line_wakes_all_waiting_tasks(ends):
    reader, writer = ends
    keyboard = Keyboard(reader)
    waiting = [asyncio.create_task(keyboard.enter()) for _ in range(2)]
    await asyncio.sleep(0)

    os.write(writer, b"\n")

    assert await asyncio.gather(*waiting) == [True, True]
    keyboard.close()


async def test_line_without_waiting_task_is_dropped(ends):
    reader, writer = ends
    keyboard = Keyboard(reader)
    earlier = asyncio.create_task(keyboard.enter())
    await asyncio.sleep(0)
    os.write(writer, b"\n")
    await earlier

    waiting = asyncio.create_task(keyboard.enter())
    await asyncio.sleep(0)

    assert not waiting.done()
    os.write(writer, b"\n")
    assert await waiting
    keyboard.close()


async def test_closed_keyboard_ends_waits():
    reader, writer = os.pipe()
    keyboard = Keyboard(reader)
    waiting = asyncio.create_task(keyboard.enter())
    await asyncio.sleep(0)

    os.close(writer)

    assert not await waiting
    await eventually(lambda: not keyboard.is_there, "the keyboard is gone")
    os.close(reader)


async def test_file_is_no_keyboard(tmp_path):
    with (tmp_path / "file").open("w+") as file:
        keyboard = Keyboard(file.fileno())

        assert not keyboard.is_there
        assert not await keyboard.enter()
