"""What every store promises, as tests. A store that fails one of them is not safe for runs.

    from onward.testing.conformance import *

    @pytest.fixture
    def connect(tmp_path):
        async def connect():
            return MyStore(tmp_path / "runs")
        return connect

`connect` opens another store on the same database each time it is called, new and empty for each test; two
stores stand for two processes, and closing one stands for the end of its process. The tests need
pytest, hypothesis and anyio's pytest plugin.
"""

from __future__ import annotations

from importlib import import_module

import pytest

from onward.testing.processes import Connect, anyio_backend, other, store

CHAPTERS = (
    "creating",
    "appending",
    "grouping",
    "controlling",
    "claiming",
    "queueing",
    "forking",
    "keeping",
    "projecting",
    "finding",
    "asking",
    "news.notifying",
    "money.reserving",
    "money.settling",
    "chats.saying",
    "chats.keeping_text",
    "registry.registering",
    "chats.asking_for",
    "measuring",
    "doing_once",
    "forgetting",
    "carrying",
)
pytestmark = pytest.mark.anyio
__all__ = ["Connect", "anyio_backend", "other", "pytestmark", "store"]

for _chapter in CHAPTERS:
    _module = f"{__name__}.{_chapter}"
    # Before the import, so that a failure shows the compared values.
    pytest.register_assert_rewrite(_module)
    _sentences = {name: test for name, test in vars(import_module(_module)).items() if name[:5] == "test_"}
    assert not _sentences.keys() & globals().keys(), f"{_module} says something again in other words"
    globals().update(_sentences)
    __all__ += _sentences
