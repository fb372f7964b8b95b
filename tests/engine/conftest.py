"""What the tests of commands share: a pipe for process ids, and real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from onward.process import SystemSpawn
from tests.engine.processes import Post


@pytest.fixture
def post(tmp_path: Path) -> Iterator[Post]:
    post = Post(tmp_path / "post")
    yield post
    post.close()


@pytest.fixture
async def spawn() -> AsyncIterator[SystemSpawn]:
    spawn = SystemSpawn()
    yield spawn
    spawn.close()
