"""`onward export` and `onward import` as people type them, between real databases."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from onward.model.events import Outcome, StepFinished, StepStarted, StepStatus, Transition
from onward.model.ids import called
from onward.store.codec import content_hash
from onward.wiring import open_store
from tests.cli.shell import GATE, ONWARD, Shell, pipeline
from tests.conformance.drafts import created, held

STORE = "mkdir -p $ONWARD_STEP_DIR/artifacts; echo kept > $ONWARD_STEP_DIR/artifacts/note"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Shell]:
    """Another shell, at another SQLite database."""
    (tmp_path / "there").mkdir()
    shell = Shell(tmp_path / "there", str(tmp_path / "there" / "onward.db"))
    yield shell
    shell.close()


@pytest.fixture
def server(tmp_path: Path, postgres_emptied_url: str) -> Iterator[Shell]:
    """Another shell, at a PostgreSQL database."""
    (tmp_path / "server").mkdir()
    shell = Shell(tmp_path / "server", postgres_emptied_url)
    yield shell
    shell.close()


def path_of(shell: Shell, name: str) -> str:
    return str(shell.directory / name)


def fill(shell: Shell) -> list[str]:
    """A completed run with a large value, an artifact and an effect; a fork of it; a run at a gate."""
    work = [("large", "seq 1 5000"), ("store", STORE), ("once", f"{ONWARD} effect charge -- echo paid")]
    shell.write("line.dot", pipeline(*work))
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "line.dot", "--run-id", "line").code == 0
    seq = shell.inside("checkpoints", "line", "--json").json[1]["seq"]
    assert shell.inside("replay", "line", "--checkpoint", str(seq), "--run-id", "fork").code == 0
    assert shell.inside("run", "gate.dot", "--run-id", "gate", "--answers", "wait").code == 75
    return ["line", "fork", "gate"]


def everything(shell: Shell, ids: list[str]) -> list[Any]:
    return [(shell.read(run_id), shell.log(run_id)) for run_id in ids]


@pytest.mark.postgres
def test_runs_go_from_sqlite_to_postgresql_and_back_and_are_the_same(
    shell: Shell, server: Shell, there: Shell
) -> None:
    ids, file = fill(shell), path_of(shell, "all.jsonl")
    said = shell.inside("export", "--all", "--out", file, "--json").json
    assert (said["runs"], said["effects"]) == (["line", "fork", "gate"], 2)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    back = path_of(shell, "back.jsonl.zst")
    assert server.inside("import", file, "--json").json["imported"] == ids
    assert server.inside("export", "--all", "--out", back).code == 0
    assert there.inside("import", back, "--json").json["imported"] == ids
    wanted = everything(shell, ids)
    for copy in (server, there):
        assert everything(copy, ids) == wanted
        assert copy.inside("verify").code == 0
        assert copy("artifacts", "line", "note").out == "kept\n"
        answered = copy.inside("answer", "gate", "Yes", "--answers", "auto")
        assert answered.code == 0, answered.err
        assert copy.read("gate")["status"] == "completed"
    assert os.path.getsize(back) < os.path.getsize(file)


def test_a_pipe_between_two_databases_is_enough(shell: Shell, there: Shell) -> None:
    fill(shell)
    sent = shell("export", "fork", "--out", "-")
    assert sent.code == 0
    assert sent.err.startswith("exported 2 runs with ")
    taken = there("import", "-", "--json", stdin=sent.out)
    assert taken.json["imported"] == ["line", "fork"]
    assert everything(there, ["fork", "line"]) == everything(shell, ["fork", "line"])


def test_importing_again_skips_what_is_there_and_says_so(shell: Shell, there: Shell) -> None:
    fill(shell)
    file = path_of(shell, "all.jsonl")
    shell.inside("export", "--all", "--out", file)
    assert there.inside("import", file).code == 0
    again = there.inside("import", file)
    assert again.code == 0
    assert again.out.count("already exists here\n") == 3
    assert "0 runs imported, 3 skipped" in again.out
    assert there.inside("answer", "gate", "Yes", "--answers", "auto").code == 0
    before = everything(there, ["line", "fork", "gate"])
    last = there.inside("import", file)
    assert f"run {called('gate')}: already exists here, and has continued since" in last.out
    assert everything(there, ["line", "fork", "gate"]) == before


def test_a_run_with_another_history_or_a_shorter_one_is_refused_and_nothing_is_written(
    shell: Shell, there: Shell
) -> None:
    shell.write("gate.dot", GATE)
    there.write("gate.dot", GATE)
    shell.write("line.dot", pipeline(("a", "true")))
    assert shell.inside("run", "line.dot", "--run-id", "first").code == 0
    assert shell.inside("run", "gate.dot", "--run-id", "gate", "--answers", "wait").code == 75
    early, late = path_of(shell, "early.jsonl"), path_of(shell, "late.jsonl")
    shell.inside("export", "gate", "--out", early)
    assert shell.inside("answer", "gate", "Yes", "--answers", "auto").code == 0
    shell.inside("export", "--all", "--out", late)
    assert there.inside("import", early).code == 0
    before = everything(there, ["gate"])
    longer = there.inside("import", late)
    assert longer.code == 1
    assert "run gate exists here up to event" in longer.err
    assert there.inside("show", "first").code == 1
    assert everything(there, ["gate"]) == before
    (there.directory / "onward.db").unlink()
    assert there.inside("run", "gate.dot", "--run-id", "gate", "--answers", "wait").code == 75
    other = there.inside("import", late, "--json")
    assert (other.code, other.error["code"]) == (1, "run_differs")
    assert "exists here with a different history" in other.err


@pytest.mark.parametrize(("policy", "status"), [((), "interrupted"), (("submit",), "queued")])
def test_a_run_that_was_running_arrives_without_its_holder_and_goes_on_there(
    shell: Shell, there: Shell, policy: tuple[str, ...], status: str
) -> None:
    latch = shell.latch("latch")
    shell.write("line.dot", pipeline(("first", "true"), ("held", latch.command), ("last", "true")))
    if policy:
        assert shell.inside("submit", "line.dot", "--run-id", "run").code == 0
        started = shell.start("worker")
    else:
        started = shell.start("run", "line.dot", "--run-id", "run")
    latch.wait_reached()
    file = path_of(shell, "run.jsonl")
    sent = shell("export", "run", "--out", file)
    assert sent.code == 0
    assert "is running and continues here as well" in sent.err
    log = shell.log("run")
    taken = there("import", file, "--json").json
    assert taken["runs"][0]["status"] == status
    assert there.read("run")["status"] == status
    assert there.log("run")[: len(log)] == log
    assert there.log("run")[len(log)]["kind"] == "RunClaimed"
    assert there.inside("verify").code == 0
    assert there("import", file).out.endswith("0 runs imported, 1 skipped\n")
    latch.release()
    started.signal(signal.SIGTERM)
    started.end()
    (shell.directory / "latch").unlink()
    (shell.directory / "latch").write_text("")
    resumed = there("resume", "run")
    assert resumed.code == 0, resumed.err
    assert there.read("run")["status"] == "completed"


@pytest.mark.parametrize("is_paused", [False, True])
def test_what_arrives_paused_is_taken_by_nobody_until_it_is_resumed(
    shell: Shell, there: Shell, is_paused: bool
) -> None:
    shell.write("line.dot", pipeline(("only", "true")))
    shell.write("gate.dot", GATE)
    assert shell.inside("submit", "line.dot", "--run-id", "queued").code == 0
    assert shell.inside("run", "line.dot", "--run-id", "over").code == 0
    assert shell.inside("run", "gate.dot", "--run-id", "asked", "--answers", "wait").code == 75
    file = path_of(shell, "all.jsonl")
    assert shell.inside("export", "--all", "--out", file).code == 0
    more = ("--paused",) if is_paused else ()
    taken = there.inside("import", file, *more, "--json").json["runs"]
    status = {one["run"]: one["status"] for one in taken}
    assert status["over"] == "completed"
    assert (status["queued"], status["asked"]) == (("paused",) * 2 if is_paused else ("queued", "waiting"))
    assert there.inside("verify").code == 0
    assert there.inside("worker", "--until-idle").code == 0
    assert there.read("queued")["status"] == ("paused" if is_paused else "completed")
    if is_paused:
        shown = there.read("queued")
        assert (shown["reason"], shown["detail"]) == ("operator", "imported with --paused")
        assert there.inside("import", file, "--paused").out.endswith("0 runs imported, 3 skipped\n")
        assert there.inside("resume", "queued").code == 0
        assert there.read("queued")["status"] == "completed"
        assert there("resume", "asked", "--answers", "wait").code == 75
        assert there.inside("answer", "asked", "No").code == 0


def test_a_fork_alone_is_refused_in_a_sentence(shell: Shell) -> None:
    fill(shell)
    done = shell.inside("export", "fork", "--no-with-parents", "--out", path_of(shell, "x"))
    assert done.code == 1
    assert "was forked from run line, which is not exported" in done.err
    assert not (shell.directory / "x").exists()
    both = shell.inside("export", "fork", "line", "--no-with-parents", "--out", path_of(shell, "x"))
    assert both.code == 0


def changed(line: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(line), **fields}, separators=(",", ":")).encode() + b"\n"


def damages(content: bytes) -> Iterator[tuple[bytes, str]]:
    """Files that are not what `export` wrote, each with what is said about it."""
    lines = content.splitlines(keepends=True)
    header, last = lines[0], lines[-1]
    event = next(index for index, line in enumerate(lines) if line.startswith(b'{"line":"event"'))
    blob = next(index for index, line in enumerate(lines) if line.startswith(b'{"line":"blob"'))

    def put(index: int, line: bytes) -> bytes:
        return b"".join((*lines[:index], line, *lines[index + 1 :]))

    yield b"", "is empty"
    yield b"\x00\xff\xfe", "is not an export of Onward"
    yield b"[1, 2]\n", "is not an export of Onward"
    yield b'{"format": "something"}\n', "is not an export of Onward"
    yield put(0, changed(header, version=3, novelty=1)), "version 3 of the format"
    yield content[:-1], "is truncated"
    yield b"".join(lines[:-1]), "is truncated"
    yield b"".join(lines[: event + 1]), "is truncated"
    yield content[: len(content) // 2], "is "
    yield b"\x28\xb5\x2f\xfd" + content, "does not decompress"
    yield content + b"\n", "continues after its end"
    yield put(event, changed(lines[event], kind="Novelty")), "is damaged in line"
    yield put(event, changed(lines[event], at_us=1)), "its hash does not match"
    yield put(event, changed(lines[event], extra=1)), "is damaged in line"
    yield put(event, b""), "is damaged in line"
    yield put(blob, changed(lines[blob], content="AAAA")), "does not match its hash"
    yield put(blob, b""), "is missing"
    yield put(len(lines) - 1, changed(last, lines=1)), "was changed since it was written"
    effect = next(index for index, line in enumerate(lines) if line.startswith(b'{"line":"effect"'))
    yield put(effect, changed(lines[effect], token="other")), "was changed since it was written"
    yield put(effect, changed(lines[effect], key="other/x")), "is in the wrong place"


def test_what_is_not_an_export_is_refused_in_one_sentence_and_nothing_is_written(
    shell: Shell, there: Shell
) -> None:
    fill(shell)
    shell.inside("export", "--all", "--out", path_of(shell, "all.jsonl"))
    content = (shell.directory / "all.jsonl").read_bytes()
    wrong = shell.directory / "wrong.jsonl"
    for damaged, said in damages(content):
        wrong.write_bytes(damaged)
        done = there.inside("import", str(wrong))
        assert done.code == 1, (said, done)
        assert said in done.err, done.err
        assert done.err.count("\n") == 1
        assert "nothing was imported" in done.err
        assert not (there.directory / "onward.db").exists()
    middle = bytearray(content)
    for place in range(7, len(content), len(content) // 40):
        middle[place] ^= 0x01
        wrong.write_bytes(middle)
        assert there.inside("import", str(wrong)).code == 1, place
        middle[place] ^= 0x01
    assert not (there.directory / "onward.db").exists()


def test_an_unknown_kind_of_event_with_a_true_hash_is_refused(shell: Shell, there: Shell) -> None:
    """A file that a newer Onward wrote in the same format."""
    shell.write("line.dot", pipeline(("a", "true")))
    shell.inside("run", "line.dot", "--run-id", "run")
    shell.inside("export", "run", "--out", path_of(shell, "x"))
    header, blob, *_ = (shell.directory / "x").read_bytes().splitlines(keepends=True)
    head = "run|1|Novelty|1|1|0|"
    hash_ = blake3(head.encode() + blake3(b"{}").digest()).hexdigest()
    event = {"line": "event", "run": "run", "seq": 1, "kind": "Novelty", "v": 1, "at_us": 1, "token": 0}
    lines = [
        changed(header, runs=[{"id": "run", "head": 1, "hash": hash_}]),
        blob,
        changed(json.dumps({**event, "body": "{}", "hash": hash_}).encode()),
    ]
    content = b"".join(lines)
    end = {"line": "end", "lines": len(lines), "hash": blake3(content).hexdigest()}
    (shell.directory / "x").write_bytes(content + json.dumps(end).encode() + b"\n")
    done = there.inside("import", path_of(shell, "x"))
    assert done.code == 1
    assert "unknown kind 'Novelty' (written by a newer Onward?)" in done.err


def test_a_run_with_a_name_that_could_not_be_claimed_is_refused(shell: Shell, there: Shell) -> None:
    """From a database that an older Onward wrote: here nobody could ever take it."""
    source = b"digraph x {}"
    fields = {"pipeline": "x" * 501, "pipeline_hash": content_hash(source)}

    async def make() -> None:
        store = await open_store(shell.db)
        await created(store, "run", blobs={content_hash(source): source}, **fields)
        await store.close()

    asyncio.run(make())
    assert shell.inside("export", "run", "--out", path_of(shell, "x")).code == 0
    done = there.inside("import", path_of(shell, "x"))
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "holds run run, which cannot be stored: the pipeline name" in done.err
    assert not (there.directory / "onward.db").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("export",), "name the runs to export, or give --all"),
        (("export", "run", "--all"), "--all exports every run; give --all or name runs, not both"),
        (("import", "nowhere.jsonl"), "cannot read nowhere.jsonl: No such file"),
    ],
)
def test_what_makes_no_sense_is_refused(shell: Shell, words: tuple[str, ...], said: str) -> None:
    done = shell.inside(*words)
    assert done.code == 2
    assert said in done.err


def test_a_file_that_cannot_be_written_leaves_nothing_behind(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "true")))
    assert shell.inside("run", "line.dot", "--run-id", "run").code == 0
    done = shell.inside("export", "run", "--out", "no/such/place")
    assert done.code == 2
    assert "cannot write no/such/place" in done.err
    assert not list(shell.directory.glob("**/*.part"))


def test_an_export_is_not_put_where_something_else_is(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot", "--run-id", "work").code == 0
    os.mkfifo(shell.directory / "pipe")
    (shell.directory / "link").symlink_to("elsewhere")
    for name in ("pipe", "link", "."):
        done = shell.inside("export", "work", "--out", str(shell.directory / name))
        assert done.code == 2
        assert "is not a file" in done.err
    assert (shell.directory / "link").is_symlink()
    assert stat.S_ISFIFO((shell.directory / "pipe").stat().st_mode)


async def forge(db: str) -> None:
    """A finished step of a node that the pipeline does not have, as a file that was made by hand can hold."""
    source = pipeline(("a", "true")).encode()
    store = await open_store(db)
    run = await held(store, "run", pipeline_hash=content_hash(source), blobs={content_hash(source): source})
    begun = StepStarted(step=".#1", node=".", attempt=1)
    ended = StepFinished(
        step=".#1",
        node=".",
        attempt=1,
        outcome=Outcome(status=StepStatus.SUCCESS),
        next=Transition(to="exit", reason="only edge", edge=0),
    )
    write, _ = run.then(begun, ended)
    await store.log.append(write, run.lease)
    await store.close()


def test_a_step_of_no_node_is_damage_in_one_sentence(shell: Shell, there: Shell) -> None:
    asyncio.run(forge(shell.db))
    assert shell.inside("export", "run", "--out", path_of(shell, "forged.onward")).code == 0
    assert there.inside("import", path_of(shell, "forged.onward")).code == 0
    for command in ("files", "receipts"):
        done = there.inside(command, "run", "--json")
        assert (done.code, done.error["code"]) == (1, "history_corrupt")
        assert "the pipeline of .#1 has no node '.'" in done.err


def test_an_export_does_not_replace_a_file_unless_it_may(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot", "--run-id", "work").code == 0
    shell.write("backup.jsonl", "the only copy")
    done = shell.inside("export", "work", "--out", "backup.jsonl")
    assert done.code == 1
    assert done.err == (
        "onward: backup.jsonl exists already; name another file, or replace this one with --overwrite.\n"
    )
    assert (shell.directory / "backup.jsonl").read_text() == "the only copy"
    assert shell.inside("export", "work", "--out", "backup.jsonl", "--json").error["code"] == "file_exists"
    assert shell.inside("export", "work", "--out", "backup.jsonl", "--overwrite").code == 0
    assert "the only copy" not in (shell.directory / "backup.jsonl").read_text()
    assert shell.inside("export", "work", "--out", "other.jsonl").code == 0
    assert not list(shell.directory.glob("*.part"))
