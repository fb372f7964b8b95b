"""What files cost: the same steps with `files=full` and with files off, in turns."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable

from bench.figure import Figure
from bench.files_floor import files_rate, left_by, line_rate
from bench.pipelines import engine_on
from bench.rates import AT_A_TIME, RUNS, STEPS, runs_rate, steps_rate
from onward.wiring import open_store

LINE_RATIO, RUNS_RATIO, LONG_RATIO = 0.6, 0.35, 0.75
SYNCED = 2 * 3
"""The files of a run that are synced: the receipt and the handoff of each of its three steps."""
LONG = 4
"""How many times as long a long line is."""


async def files_cost(
    fresh: Callable[[], str], rounds: int, steps: int = STEPS, runs: int = RUNS
) -> list[Figure]:
    """Steps and runs that leave files, against those that leave none, and a long line against a short one.

    Each round has a directory of its own: a file system takes its time to use again what was deleted.
    """
    lines, long_lines, at_once = list[tuple[float, ...]](), list[float](), list[tuple[float, ...]]()
    for _ in range(rounds):
        db = fresh()
        store = await open_store(db)
        engine = engine_on(store, f"{db}-runs")
        without, _ = await steps_rate(engine, "off", steps)
        kept, _ = await steps_rate(engine, "full", steps)
        bare_line = line_rate(f"{db}-line", left_by(_newest(f"{db}-runs")), steps)
        lines.append((kept / bare_line, kept, bare_line, without))
        long, _ = await steps_rate(engine, "full", LONG * steps)
        long_lines.append(long / kept)
        per_s, bare = await runs_rate(engine, "full", runs), await runs_rate(engine, "off", runs)
        left = left_by(_newest(f"{db}-runs"))
        floor = files_rate(f"{db}-floor", left, runs, AT_A_TIME, SYNCED)
        at_once.append((per_s / floor, per_s, floor, bare))
        await store.close()
    ratio, kept, bare_line, without = sorted(lines)[len(lines) // 2]
    longer = statistics.median(long_lines)
    of_floor, per_s, floor, bare = sorted(at_once)[len(at_once) // 2]
    return [
        Figure(
            f"files: {steps} steps in a line",
            f"{ratio:.2f} of the same files and commits by bare calls "
            f"({kept:,.0f} steps/s of {bare_line:,.0f}; without files {without:,.0f})",
            f">= {LINE_RATIO}",
            ratio >= LINE_RATIO,
        ),
        Figure(
            f"files: {LONG * steps} steps in a line against {steps}",
            f"{longer:.2f} of the rate",
            f">= {LONG_RATIO}",
            longer >= LONG_RATIO,
        ),
        Figure(
            f"files: {runs} runs x 3 steps, {AT_A_TIME} at a time",
            f"{of_floor:.2f} of the same files by bare calls "
            f"({per_s:,.0f} runs/s of {floor:,.0f}; without files {bare:,.0f})",
            f">= {RUNS_RATIO}",
            of_floor >= RUNS_RATIO,
        ),
    ]


def _newest(runs: str) -> str:
    return max((entry.path for entry in os.scandir(runs)), key=os.path.getmtime)
