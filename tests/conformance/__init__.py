"""The suite that every store passes (`suite`), a chapter in each module, and the tools that it needs.

`drafts` has writes like those of the engine; `processes` the stores that stand for processes. Other tests
use `faults` (a store that fails when told), `handlers` (scripted ones with a ledger) and `postgres` (a
pooler and a standby) as well.
"""

from __future__ import annotations

from pathlib import Path

import pytest

# Before any chapter is imported, by whichever test, so that a failure shows the compared values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{chapter.stem}" for chapter in Path(__file__).parent.glob("[!_]*.py"))
)
