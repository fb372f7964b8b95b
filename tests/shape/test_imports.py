"""Who may import whom. The tables are the rule and its documentation; the tests only compare."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shape.tree import Import, Module, imports, is_below, modules, show

# Imports point down: a package may import what stands in its row, and itself. The longest matching
# row counts. A package without a row is an error: decide where it belongs.
LAYERS: dict[str, list[str]] = {
    "errors": [],
    "threads": ["errors"],  # what an error says, whatever its own __str__ does
    "listener": [],
    "version": [],
    "entry": [],
    "replies": [],  # the shapes of replies, with no code: whatever computes one says which it is
    "supervisor": [],  # a program of its own
    "watchdog": [],  # another
    "host": ["errors"],
    "child": ["errors", "host"],
    "redact": ["errors"],  # pure: whatever stores or prints may use it
    "model": ["errors"],
    "clock": ["model"],
    "config": ["redact", "model", "errors"],
    "process": ["child", "clock", "errors"],
    "pipeline": ["model", "errors"],
    "machine": ["pipeline", "model", "errors"],
    "store": ["model", "errors", "clock", "host", "threads"],
    "workspace": ["model", "errors"],
    "handlers": ["pipeline", "model", "errors", "clock", "process", "threads", "redact"],
    # Functions of users as pipelines: handlers that make recorded calls, with no engine.
    "flows": ["handlers", "pipeline", "model", "errors"],
    "agents": [
        *("handlers", "machine", "pipeline", "model", "errors", "clock", "redact", "version"),
        *("process", "child", "threads", "entry"),
    ],
    "read": ["store", "machine", "pipeline", "model", "errors", "replies"],
    "draw": ["read", "machine", "pipeline", "model", "replies"],
    "receipts": ["read", "machine", "pipeline", "model", "errors", "clock", "entry"],
    "observe": ["store", "handlers", "model", "errors", "clock", "redact", "listener", "replies"],
    "observe.traces": ["observe", "model", "threads", "version"],
    "notify": [
        *("store", "machine", "model", "errors", "clock", "redact", "version", "process", "threads"),
    ],
    "engine": [
        *("read", "receipts", "workspace", "handlers", "store", "machine", "pipeline", "model", "errors"),
        *("clock", "redact", "version", "threads", "entry", "replies"),
    ],
    # A message to the runs of its chat: a thin shell over the engine, and pure decisions.
    "chats": ["engine", "read", "store", "machine", "pipeline", "model", "errors", "clock"],
    "carry": ["engine", "store", "machine", "model", "errors", "clock", "version"],
    "worker": ["engine", "store", "observe", "model", "errors", "clock"],
    "operations": [
        *("chats", "carry", "engine", "draw", "receipts", "read", "observe", "store", "machine", "pipeline"),
        *("model", "errors", "clock", "redact", "version", "process", "entry", "replies"),
    ],
    # The worker in it is given; what it asks of an engine is how to be asked to stop.
    "server": [
        *("operations", "replies", "observe", "store", "model", "errors", "clock", "version"),
        *("worker", "notify", "chats", "read", "redact", "draw", "engine.stop"),
    ],
}
# Who stores runs is decided in one place: all others know the parts of a store, never an adapter.
ADAPTERS = ("store.memory", "store.sqlite", "store.postgres")
NAMES_ADAPTERS = ("wiring", "testing", *ADAPTERS)
# At the top, each may import every row so far: the composition root, the Python surface, what
# `import onward` offers, the command line, the tests' tools.
for top in ("wiring", "app", "", "cli", "__main__", "testing"):
    LAYERS[top] = list(LAYERS)

# Commands keep flags and printing. What they need of a store or an engine, they ask of the operations.
LAYERS["cli.commands"] = ["cli", *(row for row in LAYERS["cli"] if row not in ("store", "engine", "wiring"))]
# Except where a command is itself the process that executes runs.
EXECUTING: dict[str, list[str]] = {
    # Opens the engine of a run in the foreground: signals stop it, and somebody answers its gates.
    "foreground": ["engine"],
    # Is the worker: it claims runs under its own name.
    # It also counts what its engine and store do.
    "workers": ["engine", "store"],
    # Holds a worker.
    "serve": ["engine", "store"],
}
for executing, parts in EXECUTING.items():
    LAYERS[f"cli.commands.{executing}"] = [*LAYERS["cli.commands"], *parts]

# Commands that know runs only as requests and replies: they would do the same with a server.
for asking in ("status", "show", "limits", "control"):
    LAYERS[f"cli.commands.{asking}"] = [
        *("cli", "operations.requests", "replies", "operations.protocol"),
        *("model", "errors", "clock"),
    ]

# Names used only in annotations and never imported at run time, so they cannot make a cycle.
TYPE_ONLY: dict[str, list[str]] = {
    "errors": ["pipeline"],
}

# A library that only some files may know. A trailing * also matches `sqlite_lock`, `sqlite.files` and so on.
CONFINED: dict[str, list[str]] = {
    "apsw": ["store.sqlite*", "testing*"],
    "starlette": ["server*"],
    "uvicorn": ["server*"],
    "httptools": ["server*"],
    "websockets": ["server*"],
    "psycopg": ["store.postgres*", "testing*"],
    "psycopg_pool": ["store.postgres*", "testing*"],
    "cyclopts": ["cli*"],
    "jsonschema_rs": ["agents.tools.schema*"],
    "aiohttp": ["agents.http", "agents.tools.web", "operations.remote", "testing*"],
    "pydantic_ai": ["agents.others*"],
    "opentelemetry": ["observe.traces"],
    "boto3": ["agents.others_bedrock"],
    "botocore": ["agents.others_bedrock"],
    "yarl": ["agents.http", "agents.tools.web", "testing*"],
    # Time, identity and chance are passed in, so that a whole fleet can run from a seed.
    # The supervisor is a program of its own: it must keep a deadline while we are frozen.
    "time": ["clock", "supervisor", "testing*"],
    "random": ["clock", "testing*", "flows.values"],  # which seeds it with a place in the history
    "uuid": ["clock", "testing*", "model.stored", "flows.values"],  # those know a UUID by its type
    "secrets": ["clock", "testing*"],
}

# Settings come in through one door.
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
ENVIRONMENT_READERS = ["config", "testing*"]

# What `onward --help` must not wait for.
HEAVY = [
    "apsw",
    "psycopg",
    "zstandard",
    "fastapi",
    "uvicorn",
    "pydantic_ai",
    "aiohttp",
    "jsonschema_rs",
    "onward.agents",
    "onward.engine",
    "onward.worker",
]
HEAVY += ["onward.server", "onward.wiring", "onward.testing", "onward.store.sqlite", "onward.store.postgres"]


def row_of(name: str) -> str | None:
    rows = [row for row in LAYERS if row and is_below(name, row)]
    return max(rows, key=len) if rows else ("" if name == "" else None)


def matches(name: str, patterns: list[str]) -> bool:
    return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)


def faults(module: Module) -> list[str]:
    """What a file imports or reads though it may not."""
    found = imports(module)
    return direction_faults(module, found) + library_faults(module, found) + environment_faults(module)


def direction_faults(module: Module, imported: list[Import]) -> list[str]:
    """What a file imports of Onward against the tables."""
    row = row_of(module.name)
    if row is None:
        return [f"{show(module.path)} is in no row of LAYERS: decide what it may import"]
    faults = []
    for found in imported:
        if not is_below(found.target, "onward"):
            continue
        target = found.target.removeprefix("onward").lstrip(".")
        if not _is_allowed(row, target, found) or _names_an_adapter(module.name, target):
            faults.append(
                f"{show(module.path, found.line)} imports {found.target}, which {row or 'onward'} may not"
            )
    return faults


def _is_allowed(row: str, target: str, found: Import) -> bool:
    if target == row or (row and is_below(target, row)):
        return True
    allowed = LAYERS[row] + (TYPE_ONLY.get(row, []) if found.type_only else [])
    return any(target == entry or (entry and is_below(target, entry)) for entry in allowed)


def _names_an_adapter(name: str, target: str) -> bool:
    return any(is_below(target, one) for one in ADAPTERS) and not any(
        is_below(name, one) for one in NAMES_ADAPTERS
    )


def library_faults(module: Module, imported: list[Import]) -> list[str]:
    """Which confined libraries a file imports though it may not."""
    return [
        f"{show(module.path, found.line)} imports {found.target}; only {', '.join(CONFINED[library])} may"
        for found in imported
        if (library := found.target.partition(".")[0]) in CONFINED
        and not matches(module.name, CONFINED[library])
    ]


def environment_faults(module: Module) -> list[str]:
    """Where a file reads the process's environment though it may not."""
    if matches(module.name, ENVIRONMENT_READERS) or not any(name in module.text for name in ENVIRONMENT):
        return []
    return [
        f"{show(module.path, node.lineno)} reads the environment; settings come from config/"
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and node.attr in ENVIRONMENT)
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and _names(node) & ENVIRONMENT)
    ]


def _names(node: ast.ImportFrom) -> set[str]:
    return {alias.name for alias in node.names}


def test_every_file_imports_only_what_its_layer_may() -> None:
    found = [fault for module in modules() for fault in faults(module)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("model.run", "import onward.engine"),
        ("model.run", "from onward import engine"),
        ("machine.plan.planner", "def f() -> None:\n    from onward.store.port.log import RunLog"),
        ("engine.loop", "from onward.store.sqlite.adapter import SqliteStore"),
        ("engine.loop", "from onward.agents.step.handler import AgentHandler"),
        ("store.memory", "from ..machine import apply"),
        ("store.memory", "if TYPE_CHECKING:\n    from onward.machine.plan.planner import Action"),
        ("wiring", "from onward.testing import postgres"),
        ("novelty", ""),
        ("cli.commands.status", "from onward.store.port.runs import RunQuery"),
        ("cli.commands.control", "from onward.engine.engine import Engine"),
        ("cli.commands.storage", "from onward.engine.control.retention import Collector"),
        ("cli.commands.files", "from onward.store.port.store import Store"),
        ("cli.commands.run", "from onward.wiring import open_store"),
        ("cli.commands.foreground", "from onward.wiring import make_engine"),
        ("operations.local.look", "from onward.cli.output import table"),
        ("store.sqlite", "import psycopg"),
        ("store.postgres_pool", "import apsw"),
        ("store.sql", "from psycopg.rows import dict_row"),
        ("engine.loop", "import time"),
        ("read.view", "from onward.engine.engine import Engine"),
        ("agents.models", "import aiohttp"),
        ("agents.providers", "from onward.store.port.log import RunLog"),
        ("machine.definition", "from random import random"),
        ("cli.main", "import os\nhome = os.environ['HOME']"),
        ("store.sqlite", "from os import getenv"),
    ],
)
def test_a_forbidden_import_is_found(name: str, code: str) -> None:
    assert faults(written(name, code))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("errors", "if TYPE_CHECKING:\n    from onward.pipeline.source import Diagnostic"),
        ("store.sqlite_lock", "import apsw\nfrom onward.errors import StoreFull"),
        ("store.postgres.pool", "from psycopg_pool import AsyncConnectionPool"),
        (
            "engine.loop",
            "from onward.store.port.log import RunLog\nfrom .attempt import run_attempt",
        ),
        ("clock", "import time, random, secrets, uuid"),
        ("config", "import os\nhome = os.environ.get('HOME')"),
        ("cli.commands.workers", "from onward.engine.engine import Engine"),
        ("cli.operations", "from onward.wiring import open_store"),
    ],
)
def test_an_allowed_import_is_not_found(name: str, code: str) -> None:
    assert not faults(written(name, code))


def written(name: str, code: str) -> Module:
    path = modules()[0].path.parent.joinpath(*name.split(".")).with_suffix(".py")
    return Module(name, path, code)


def test_a_model_can_be_named_and_priced_without_an_http_client() -> None:
    """Workers, and whoever shows runs, need the port long before the first request."""
    named = "onward.wiring, onward.agents.models, onward.agents.prices"
    code = f"import sys, {named}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"aiohttp", "yarl", "pydantic_ai"} & set(loaded.stdout.split())


def test_the_command_line_starts_without_loading_what_it_may_not_need(tmp_path: Path) -> None:
    code = "import sys, onward.cli.main; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert loaded.returncode == 0, loaded.stderr
    assert not set(HEAVY) & set(loaded.stdout.split())
