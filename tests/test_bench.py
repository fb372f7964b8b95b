"""Parts of `make bench` that stand in for a part of the package: they break when that changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.calls import round_of
from bench.messages import message_streams


async def test_the_bench_of_messages_streams_and_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.messages.SECONDS", 0.05)
    figures = await message_streams(str(tmp_path / "bench.db"), "SQLite")
    assert len(figures) == 2, "at the pace of models, and as fast as it goes"


async def test_the_bench_of_calls_measures_every_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.calls.CALLS", 2)
    monkeypatch.setattr("bench.calls.WARM_STEPS", 2)
    took_us = await round_of(str(tmp_path / "bench.db"), 0)
    assert sorted(took_us) == ["one append", "reserved", "started first", "step"]
    assert all(one > 0 for one in took_us.values())
