"""The repository as data, for the tests beside this file."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "onward"
NOT_OURS = {
    ".git",
    ".venv",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "__pycache__",
    "node_modules",
}


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file of the package; `name` is dotted and without the leading `onward`."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """What a relative import is relative to."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target, dotted and absolute."""

    target: str
    line: int
    type_only: bool


@cache
def parsed(path: Path) -> ast.Module:
    """A Python file as a tree."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def modules() -> tuple[Module, ...]:
    """Every Python file below src/onward."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, parsed(path)))
    return tuple(found)


def imports(module: Module) -> Iterator[Import]:
    """What a file imports, at its top or inside its functions."""
    nodes = [*ast.walk(module.tree)]
    guarded = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.If) and _is_for_types(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in _targets(module, node):
                yield Import(target, node.lineno, id(node) in guarded)


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute) and "TYPE_CHECKING" in ast.unparse(test)


def _targets(module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    origin = node.module or ""
    if node.level:
        parts = f"onward.{module.package}".rstrip(".").split(".")
        origin = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [origin])])
    for alias in node.names:
        full = f"{origin}.{alias.name}"
        yield full if _is_our_module(full) else origin


def _is_our_module(dotted: str) -> bool:
    path = PACKAGE.parent.joinpath(*dotted.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def is_below(name: str, prefix: str) -> bool:
    """Whether a dotted name is `prefix` or something inside it."""
    return name == prefix or name.startswith(f"{prefix}.")


@cache
def repository_files() -> tuple[Path, ...]:
    """Every file that is, or would be, committed."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        paths = [ROOT / name for name in answer.stdout.split("\0") if name]
    else:  # not a clone but, say, an unpacked archive
        paths = [path for path in ROOT.rglob("*") if not NOT_OURS & set(path.relative_to(ROOT).parts)]
    return tuple(sorted(path for path in paths if path.is_file()))


def show(path: Path, line: int | None = None) -> str:
    """A file as a person names it."""
    place = str(path.relative_to(ROOT))
    return place if line is None else f"{place}:{line}"
