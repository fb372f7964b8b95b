"""The repository as data, for the tests beside this file."""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
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


BEFORE_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.STRING}


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file of the package; `name` is dotted and without the leading `onward`.

    To parse all of them takes seconds, and each process that tests runs in would do so: whoever looks for
    something looks into `text` for its name first.
    """

    name: str
    path: Path
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def docstring(self) -> str:
        """What the file says first, for which the rest of it need not be parsed."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.NEWLINE:
                opening = self.text.splitlines(keepends=True)[: token.end[0]]
                return ast.get_docstring(ast.parse("".join(opening))) or ""
            if token.type not in BEFORE_CODE:
                break
        return ""

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
def modules() -> tuple[Module, ...]:
    """Every Python file below src/onward."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, path.read_text(encoding="utf-8")))
    return tuple(found)


def imports(module: Module) -> list[Import]:
    """What a file imports, at its top or inside its functions."""
    found, guarded = list[ast.Import | ast.ImportFrom](), set[int]()
    for node in _statements(module.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif isinstance(node, ast.If) and _is_for_types(node.test):
            guarded |= {id(inner) for statement in node.body for inner in ast.walk(statement)}
    return [
        Import(target, node.lineno, id(node) in guarded)
        for node in found
        for target in _targets(module, node)
    ]


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement and what holds statements, without the expressions: those are most of a tree."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.expr)]


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
