"""What every store promises, as tests. A store that fails one of them is not safe for runs.

    from tests.conformance.suite import *

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

from tests.conformance.processes import Connect, anyio_backend, other, store

CHAPTERS = (
    "creation",
    "appends",
    "requests",
    "leases",
    "queue",
    "forks",
    "content",
    "rows",
    "lists",
    "questions",
    "changes",
    "pages",
    "notifications",
    "limits",
    "messages",
    "message_text",
    "pipelines",
    "intake",
    "measures",
    "effects",
    "retention",
    "imports",
    "principals",
    "audit",
)
pytestmark = pytest.mark.anyio
__all__ = ["Connect", "anyio_backend", "other", "pytestmark", "store"]

for _chapter in CHAPTERS:
    _module = f"{__package__}.{_chapter}"
    _sentences = {name: test for name, test in vars(import_module(_module)).items() if name[:5] == "test_"}
    assert not _sentences.keys() & globals().keys(), f"{_module} says something again in other words"
    globals().update(_sentences)
    __all__ += _sentences
