"""A database that can only be read can be looked at; what would change it is refused in one sentence."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw
import psycopg
import pytest

from onward.store.sqlite.statements import MIGRATIONS, QUERIES
from tests.cli.shell import GATE, PATIENCE_S, Done, Shell, pipeline

NOBODY = 65534
# Permissions do not hold for root, so root becomes nobody. The same commands are first executed on another
# database: nobody may not read the directories of all modules.
READER = f"""
import contextlib, encodings.ascii, io, json, os, sys
from onward.cli.main import run
def printed(words):
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    for stream in (out, err):
        stream.flush()
    return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()
db, before, lines = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
if os.getuid() == 0:
    os.environ["ONWARD_DB"] = before
    for words in lines:
        printed(words)
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
os.environ["ONWARD_DB"] = db
print(json.dumps([printed(words) for words in lines]))
"""


@dataclass
class Kept:
    """A database in a directory of its own, and somebody who may only read it."""

    shell: Shell
    place: Path

    @property
    def db(self) -> str:
        return str(self.place / "onward.db")

    def lock(self) -> None:
        """Take all rights to write."""
        for file in self.place.iterdir():
            file.chmod(0o444)
        self.place.chmod(0o555)

    def __call__(self, *words: str) -> Done:
        (done,) = self.read(words)
        return done

    def read(self, *lines: Sequence[str]) -> list[Done]:
        """What the reader is told by each of the commands."""
        done = subprocess.run(
            [sys.executable, "-c", READER, self.db, self.shell.db, json.dumps(lines)],
            cwd="/",
            env=self.shell.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [Done(*each) for each in json.loads(done.stdout)]


@pytest.fixture
def kept(shell: Shell) -> Iterator[Kept]:
    shell.write("ok.dot", pipeline(("a", "true")))
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "ok.dot", "--run-id", "fine").code == 0
    assert shell.inside("run", "gate.dot", "--run-id", "asks").code == 75
    with tempfile.TemporaryDirectory(prefix="onward-kept-") as directory:
        kept = Kept(shell, Path(directory))
        shutil.copyfile(shell.db, kept.db)
        kept.lock()
        yield kept
        kept.place.chmod(0o755)


def test_what_only_looks_works_on_a_database_that_can_only_be_read(kept: Kept) -> None:
    before = sorted(os.listdir(kept.place))
    looks = (
        ("status",),
        ("status", "fine"),
        ("show", "fine"),
        ("show", "fine", "a"),
        ("events", "fine"),
        ("logs", "fine"),
        ("checkpoints", "fine"),
        ("graph", "fine"),
        ("artifacts", "fine"),
        ("verify",),
        ("stats",),
        ("workers",),
        ("answer",),
        ("export", "--all"),
        ("effect", "pay"),
    )
    for words, done in zip(looks, kept.read(*looks), strict=True):
        assert (done.code, "onward:" in done.err) == (0, False), (words, done)
    assert sorted(os.listdir(kept.place)) == before


def test_what_changes_a_run_is_refused_on_a_database_that_can_only_be_read(kept: Kept) -> None:
    changes = (
        ("cancel", "asks"),
        ("answer", "asks", "Yes", "--no-run"),
        ("pause", "asks"),
        ("effect", "k", "--", "true"),
    )
    for words, done in zip(changes, kept.read(*changes), strict=True):
        assert done.code == 1, (words, done)
        assert done.err.splitlines()[-1].startswith("onward: "), (words, done)
        assert "cannot be written" in done.err or "writable" in done.err, (words, done)
        assert "Traceback" not in done.err, (words, done)


def test_the_doctor_says_that_a_database_can_only_be_read(kept: Kept) -> None:
    done = kept("doctor")
    assert (done.code, "BAD  writable" in done.out) == (1, True), done


def test_an_old_schema_that_cannot_be_brought_up_to_date_is_one_sentence(kept: Kept) -> None:
    kept.place.chmod(0o755)
    os.unlink(kept.db)
    old = apsw.Connection(kept.db)
    old.execute("PRAGMA journal_mode = WAL")
    old.execute(QUERIES["migrations_table"])
    for number, name, script in MIGRATIONS[:-1]:
        old.execute(script)
        old.execute(QUERIES["migration_insert"], {"number": number, "name": name})
    old.close()
    kept.lock()
    done = kept("status")
    assert (done.code, done.err.count("\n")) == (1, 1), done
    assert f"has schema {MIGRATIONS[-2][0]}, this version reads schema {MIGRATIONS[-1][0]}" in done.err
    assert "open it once where it is writable, or copy it there." in done.err


def test_a_database_whose_log_cannot_be_read_here_is_one_sentence(kept: Kept) -> None:
    """A copy of a database that was in use, without its index, on a medium that cannot be written."""
    kept.place.chmod(0o755)
    (kept.place / "onward.db-wal").write_bytes(b"x")
    kept.lock()
    done = kept("status")
    assert (done.code, done.err.count("\n")) == (1, 1), done
    assert "copy both files to a directory of your own" in done.err


@pytest.mark.skipif(os.getuid() != 0, reason="two users are needed, one of whom may write")
def test_a_reader_sees_what_another_user_writes(kept: Kept) -> None:
    kept.place.chmod(0o755)
    os.chmod(kept.db, 0o644)
    assert kept("status", "asks", "--json").json["status"] == "waiting"
    latch = kept.shell.latch("latch")
    kept.shell.write("slow.dot", pipeline(("a", latch.command)))
    writer = kept.shell.start("run", "slow.dot", "--db", kept.db, "--run-id", "slow")
    latch.wait_reached()
    assert os.stat(f"{kept.db}-wal").st_size > 0
    seen = kept("status", "slow", "--json")
    assert seen.json.get("status") == "running", seen
    latch.release()
    assert writer.end().code == 0
    assert not os.path.exists(f"{kept.db}-wal")
    assert kept("status", "slow", "--json").json["status"] == "completed"


@pytest.mark.skipif(os.getuid() != 0, reason="a user who may write where another only reads")
def test_a_read_that_a_write_came_between_is_made_again(kept: Kept) -> None:
    """Without side files SQLite takes no locks, so the reader itself sees that the file has changed."""
    read = """
    import asyncio, os, sys
    from onward.wiring import open_store
    from onward.operations.local.lists import LocalLists
    from onward.operations.requests import ListRuns
    async def main():
        async def statuses():
            return sorted(run["status"] for run in (await LocalLists(store).list_runs(ListRuns()))["runs"])
        store = await open_store(sys.argv[2]); await statuses(); await store.close()
        os.setgroups([]); os.setresgid(*[NOBODY] * 3); os.setresuid(*[NOBODY] * 3)
        store = await open_store(sys.argv[1])
        print(await statuses(), flush=True)
        sys.stdin.readline()
        print(await statuses(), flush=True)
        await store.close()
    asyncio.run(main())
    """
    kept.place.chmod(0o755)
    os.chmod(kept.db, 0o644)
    program = textwrap.dedent(read).replace("NOBODY", str(NOBODY))
    reader = subprocess.Popen(
        [sys.executable, "-c", program, kept.db, kept.shell.db],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    assert reader.stdout.readline() == "['completed', 'waiting']\n"
    assert kept.shell.inside("cancel", "asks", "--db", kept.db).code == 0
    out, _ = reader.communicate("\n", timeout=PATIENCE_S)
    assert out == "['cancelled', 'completed']\n"


@pytest.fixture
def looker(shell: Shell, postgres_ready_url: str) -> Iterator[Shell]:
    """A shell at a PostgreSQL database with a role that may only read."""
    shell.environment["ONWARD_DB"] = postgres_ready_url
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", "asks").code == 75
    role = f"looker_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_ready_url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'only-looks'")
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        shell.environment["ONWARD_DB"] = as_role(postgres_ready_url, role)
        yield shell
        db.execute(f"DROP OWNED BY {role}")
        db.execute(f"DROP ROLE {role}")


def as_role(url: str, role: str) -> str:
    return re.sub(r"//[^@/]*@", f"//{role}:only-looks@", url)


@pytest.mark.postgres
def test_a_role_that_may_only_read_can_look_and_change_nothing(looker: Shell) -> None:
    for words in (("status",), ("show", "asks"), ("events", "asks"), ("stats",), ("verify",), ("workers",)):
        done = looker.inside(*words)
        assert (done.code, done.err) == (0, ""), words
    done = looker.inside("cancel", "asks")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "the role is not allowed to do this" in done.err


@pytest.mark.postgres
def test_an_old_schema_that_a_role_may_not_bring_up_to_date_is_one_sentence(
    looker: Shell, postgres_ready_url: str
) -> None:
    with psycopg.connect(postgres_ready_url, autocommit=True) as db:
        db.execute("DELETE FROM migration WHERE number = (SELECT max(number) FROM migration)")
    done = looker.inside("status")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "this version reads schema" in done.err
    assert "open it once on the primary, with a role that owns its tables." in done.err
