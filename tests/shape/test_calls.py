"""Calls that no file may make: code out of data, shells, and SQL glued together from strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shape.tree import ROOT, show

FOLDERS = ("src", "demo", "examples", "scripts")

BANNED_MODULES = {
    "pickle": "stored data must never be able to run code",
    "marshal": "stored data must never be able to run code",
    "shelve": "it is pickle in a file",
    "dill": "stored data must never be able to run code",
    "cloudpickle": "stored data must never be able to run code",
}
BANNED_CALLS = {
    "eval": "it runs code out of data",
    "exec": "it runs code out of data",
    "builtins.eval": "it runs code out of data",
    "builtins.exec": "it runs code out of data",
    "yaml.load": "it builds arbitrary objects; use yaml.safe_load",
    "yaml.unsafe_load": "it builds arbitrary objects; use yaml.safe_load",
    "os.system": "it runs a shell; use a list of arguments",
    "os.popen": "it runs a shell; use a list of arguments",
    "datetime.now": "time comes from the clock that is passed in",
    "datetime.utcnow": "time comes from the clock that is passed in",
    "datetime.datetime.now": "time comes from the clock that is passed in",
    "datetime.datetime.utcnow": "time comes from the clock that is passed in",
    "date.today": "time comes from the clock that is passed in",
    "datetime.date.today": "time comes from the clock that is passed in",
    "os.urandom": "randomness comes from the ports in clock.py",
}
RUNS_SQL = {"execute", "executemany", "executescript", "executelastrow", "copy"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
# The last words of all that is banned: most files hold none of them, and to parse one takes long.
WORTH_PARSING = re.compile(
    rf"\b(?:{'|'.join({name.rpartition('.')[2] for name in (*BANNED_MODULES, *BANNED_CALLS)})})\b"
    rf"|\bshell\s*=|\.\s*(?:{'|'.join(RUNS_SQL)})\b"
)


def faults(code: str) -> list[tuple[int, str]]:
    """Every banned thing in a file: its line, and why it is banned."""
    if not WORTH_PARSING.search(code):
        return []
    tree = ast.parse(code)
    nodes = [*ast.walk(tree)]
    return sorted({*_module_faults(nodes), *_call_faults(nodes), *_sql_faults(tree)})


def _module_faults(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in (f"{origin}{alias.name}" for alias in node.names):
                if reason := BANNED_MODULES.get(name.partition(".")[0]) or BANNED_CALLS.get(name):
                    yield node.lineno, f"imports {name}: {reason}"


def _call_faults(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if reason := BANNED_CALLS.get(name):
            yield node.lineno, f"calls {name}: {reason}"
        for keyword in node.keywords:
            if keyword.arg == "shell" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield node.lineno, "passes shell=…: use a list of arguments"


def _sql_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    if not any(_statements(tree)):
        return
    for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, Function))):
        glued = {name for name, value in _assignments(scope) if _is_glued(value)}
        for line, runs, statement in _statements(scope):
            if _is_glued(statement) or (isinstance(statement, ast.Name) and statement.id in glued):
                yield line, f"builds the SQL it passes to {runs}: use parameters"


def _statements(scope: ast.AST) -> Iterator[tuple[int, str, ast.expr]]:
    """What is run as SQL: in which line, by which method, and what is passed to it."""
    for node in ast.walk(scope):
        match node:
            case ast.Call(func=ast.Attribute(attr=runs), args=[statement, *_]) if runs in RUNS_SQL:
                yield node.lineno, runs, statement


def _assignments(scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.AugAssign(target=ast.Name(id=name), value=ast.JoinedStr() as value):
                yield name, value
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                yield name, value


def _is_glued(node: ast.expr) -> bool:
    """Whether an expression is text put together at run time."""
    match node:
        case ast.JoinedStr(values=parts):
            return any(isinstance(part, ast.FormattedValue) for part in parts)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _is_text(left)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_glued(left) or _is_glued(right) or _is_text(left) != _is_text(right)
        case ast.Call(func=ast.Attribute(value=owner, attr="format")):
            # psycopg's SQL("…").format(Identifier(…)) quotes what it puts in.
            return not (isinstance(owner, ast.Call) and ast.unparse(owner.func).rpartition(".")[2] == "SQL")
        case ast.Call(func=ast.Attribute(attr="join" | "replace")):
            return True
        case ast.Call(func=ast.Attribute(attr="encode", value=owner)):
            return _is_glued(owner)
        case ast.Call(func=ast.Name(id="SQL") | ast.Attribute(attr="SQL"), args=[text]):
            return _is_glued(text)
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def python_files() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def test_no_file_makes_a_banned_call() -> None:
    found = [
        f"{show(path, line)} {why}"
        for path in python_files()
        for line, why in faults(path.read_text(encoding="utf-8"))
        if not why.endswith(_reasons_that_do_not_apply(path))
    ]
    assert found == []


def _reasons_that_do_not_apply(path: Path) -> tuple[str, ...]:
    """The clock is where the clock is read, and testing tools and programs outside the package may."""
    package = ROOT / "src" / "onward"
    if path == package / "clock.py" or package / "testing" in path.parents or package not in path.parents:
        return ("time comes from the clock that is passed in", "randomness comes from the ports in clock.py")
    return ("\0",)


@pytest.mark.parametrize(
    "code",
    [
        "eval('1')",
        "exec('x = 1')",
        "import builtins; builtins.exec('1')",
        "import pickle",
        "from marshal import loads",
        "def f():\n    import shelve",
        "import yaml; yaml.load(text)",
        "from yaml import load",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=flag)",
        "os.system('ls')",
        "datetime.now(UTC)",
        "cursor.execute(f'SELECT * FROM {table}')",
        "cursor.execute('SELECT * FROM %s' % table)",
        "cursor.execute('SELECT * FROM ' + table)",
        "cursor.execute(table + ' ORDER BY 1')",
        "cursor.execute('SELECT * FROM {}'.format(table))",
        "cursor.execute(' AND '.join(clauses))",
        "cursor.execute(SQL(f'SELECT {column}'))",
        "cursor.execute(f'SELECT {column}'.encode())",
        "cursor.executemany(f'INSERT INTO {table} VALUES (?)', rows)",
        "def f(table):\n    query = f'SELECT * FROM {table}'\n    cursor.execute(query)",
        "async def f(name):\n    query = 'SELECT '\n    query += f'{name}'\n    await cursor.execute(query)",
    ],
)
def test_a_banned_call_is_found(code: str) -> None:
    assert faults(code)


@pytest.mark.parametrize(
    "code",
    [
        "cursor.execute('SELECT * FROM run WHERE id = ?', (run_id,))",
        "cursor.execute('SELECT * '\n'FROM run')",
        "cursor.execute(QUERIES['find_run'], {'id': run_id})",
        "cursor.execute(sql.SQL('DROP DATABASE {}').format(sql.Identifier(name)))",
        "subprocess.run(['ls'], shell=False)",
        "yaml.safe_load(text)",
        "ast.literal_eval(text)",
        "handler.execute(context)",
        "print(f'{run}')",
    ],
)
def test_an_ordinary_call_is_not_found(code: str) -> None:
    assert not faults(code)
