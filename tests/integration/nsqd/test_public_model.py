"""The public interface compared with its model: histories that once found a fault, and a few random ones."""

from pathlib import Path

import pytest

from tests.model.__main__ import play
from tests.model.histories import DIRECTED
from tests.model.played import Played
from tests.support.processes import Cluster


@pytest.mark.parametrize("name", DIRECTED)
def test_directed_history_agrees_with_model(cluster: Cluster, name: str) -> None:
    played = Played(cluster.nsqd())
    try:
        played.play(DIRECTED[name])
    finally:
        played.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_history_agrees_with_model(tmp_path: Path, seed: int) -> None:
    play(seed, tmp_path, steps=25)
