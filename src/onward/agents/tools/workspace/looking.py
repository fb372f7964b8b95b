"""Walk through a workspace: sorted, bounded, through no link, and not into what only programs read."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from onward.agents.tools.workspace.paths import DEPTH_MAX, Path, PathRefused, shown
from onward.agents.tools.workspace.tree import Found, Tree

NOT_ENTERED = frozenset(
    (
        *(".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".cache", ".gradle", ".terraform"),
    )
)
"""Directories that are listed, but not looked into, unless they are named."""
ENTRIES_MAX = 50_000
PATTERN_CHARACTERS_MAX = 500


class Walk:
    """Everything below a directory, depth first. `notes` say what was not looked at."""

    def __init__(self, tree: Tree, entries_max: int = ENTRIES_MAX) -> None:
        self._tree, self._left, self._entries_max = tree, entries_max, entries_max
        self._skipped: set[str] = set()
        self._is_cut = False

    def below(self, parts: Path) -> Iterator[Found]:
        """All that is found; a directory comes before what is in it."""
        for found in self._tree.entries(self._tree.directory(parts), parts):
            if self._left <= 0:
                self._is_cut = True
                return
            self._left -= 1
            yield found
            if found.is_directory:
                yield from self._inside(found)

    def _inside(self, found: Found) -> Iterator[Found]:
        if found.parts[-1] in NOT_ENTERED or len(found.parts) >= DEPTH_MAX:
            self._skipped.add(found.parts[-1])
            return
        try:
            yield from self.below(found.parts)
        except PathRefused:
            self._skipped.add(shown(found.parts))  # it was removed or exchanged, or may not be read

    @property
    def notes(self) -> list[str]:
        told = []
        if self._skipped:
            told.append(f"not looked into: {', '.join(sorted(self._skipped)[:20])}")
        if self._is_cut:
            told.append(f"stopped after {self._entries_max:,} entries; name a directory")
        return told


def matches(parts: Path, pattern: str) -> bool:
    """Whether a path fits a pattern such as `*.py`, `src/*.py` or `src/**/test_*.py`.

    A pattern without `/` is one for names, at any depth.
    """
    if "/" not in pattern:
        return fnmatchcase(parts[-1], pattern)
    return _fits(parts, tuple(name for name in pattern.split("/") if name not in ("", ".")))


def check_pattern(pattern: str) -> str:
    """The pattern itself; PathRefused if it is too long to be one."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise PathRefused(f"the pattern is longer than {PATTERN_CHARACTERS_MAX} characters.")
    return pattern


def _fits(parts: Path, names: Path) -> bool:
    """Row by row, so that many `**` cost no more than a table of names × parts."""
    reached = [True] + [False] * len(parts)
    for name in names:
        if name == "**":
            first = reached.index(True) if True in reached else len(reached)
            reached = [at >= first for at in range(len(reached))]
            continue
        reached = [False] + [reached[at] and fnmatchcase(part, name) for at, part in enumerate(parts)]
    return reached[-1]
