"""The tool that researchers have besides the built-in ones."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from onward import Onward

HERE = Path(__file__).parent
HOURS = {"batteries": 4, "hydrogen": 2000, "water": 12}
app = Onward()


@app.tool
def hours(storage: Literal["batteries", "hydrogen", "water"]) -> str:
    """For how many hours a storage of usual size can deliver."""
    with (HERE / "uses.txt").open("a", encoding="utf-8") as file:  # outside of Onward, to count the uses
        file.write(f"hours {storage}\n")
    return f"{storage} lasts {HOURS[storage]} hours"
