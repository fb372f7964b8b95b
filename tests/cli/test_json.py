"""What programs rely on: the names and types of every `--json` reply."""

from __future__ import annotations

import tomllib

from onward.cli.main import COMMANDS
from onward.cli.replies import REPLIES, FailureShown, Steered
from scripts.json_page import ANYWHERE, FIELDS, names, promised, replies
from tests.cli.described import fault
from tests.cli.shell import GATE, Shell, pipeline

EVERY = (
    (0, "validate ok.dot"),
    (0, "simulate-script ok.dot"),
    (0, "run ok.dot --run-id fine --set topic=tea"),
    (75, "run gate.dot --run-id asks"),
    (1, "run bad.dot --run-id bad"),
    (0, "answer"),
    (75, "answer asks Yes"),
    (0, "answer asks Sure --no-run"),
    (0, "status"),
    (0, "status fine"),
    (0, "status fine --watch"),
    (0, "show fine"),
    (0, "show asks"),
    (0, "show fine a"),
    (0, "show bad"),
    (0, "logs fine"),
    (0, "events fine"),
    (0, "events fine --dialect"),
    (0, "checkpoints fine"),
    (0, "graph fine"),
    (0, "graph ok.dot"),
    (0, "files fine"),
    (0, "receipts fine"),
    (0, "calls fine"),
    (0, "messages fine"),
    (0, "models"),
    (0, "tools"),
    (0, "limits set run tokens 5000"),
    (0, "usage"),
    (0, "artifacts fine"),
    (1, "artifacts fine none"),
    (0, "resume bad --dry-run"),
    (0, "resume asks"),
    (1, "retry bad"),
    (0, "retry bad --queue"),
    (0, "pause bad"),
    (0, "dismiss bad"),
    (0, "cancel bad"),
    (0, "replay fine --checkpoint 1 --run-id fork"),
    (0, "replay fine --checkpoint 1 --no-run --run-id made"),
    (0, "submit gate.dot --run-id queued"),
    (0, "submit gate.dot --from-jsonl many.jsonl"),
    (0, "steer queued quickly"),
    (0, "worker --until-idle"),
    (0, "workers"),
    (0, "notifications"),
    (1, "notifications --retry none"),
    (0, "recover"),
    (0, "abort queued"),
    (1, "skip fine"),
    (0, "pipelines add ok.dot --name one"),
    (0, "pipelines show one"),
    (0, "pipelines enable one 1"),
    (0, "run one"),
    (0, "pipelines"),
    (0, "chat talk hello --pipeline one"),
    (0, "chats"),
    (0, "chats show talk"),
    (0, "pipelines remove one"),
    (0, "stats"),
    (0, "tokens add ci --role operator"),
    (0, "tokens"),
    (0, "tokens revoke ci"),
    (2, "tokens link"),
    (0, "audit"),
    (2, "serve --host 0.0.0.0"),
    (0, "effect pay -- echo paid"),
    (0, "effect pay"),
    (0, "effect pay --forget"),
    (0, "export --all --out all.jsonl"),
    (0, "import all.jsonl"),
    (0, "verify"),
    (0, "doctor"),
    (0, "gc --older-than 0d"),
    (0, "version"),
    (0, "init new"),
    (0, "completion bash"),
)


def test_no_published_field_is_removed_renamed_or_of_another_type() -> None:
    now = names()
    for name, fields in promised()["objects"].items():
        assert name in now, f"`--json` no longer has the object {name}, which programs read; keep it."
        for field, kind in fields.items():
            assert field in now[name], f"`--json` no longer has {name}.{field}, which programs read; keep it."
            assert now[name][field] == kind, (
                f"{name}.{field} of `--json` was {kind} and is {now[name][field]}; programs read it, so add "
                "another field instead."
            )


def test_no_command_replies_with_something_else_than_before() -> None:
    now = replies()
    for name, kinds in promised()["replies"].items():
        for when, kind in kinds.items():
            found = now.get(name, {}).get(when)
            assert found == kind, (
                f"`onward {name} --json` ({when}) printed {kind} and prints {found}; keep it."
            )


def test_every_command_has_its_reply_described() -> None:
    missing = [name for name, _, _ in COMMANDS if name not in REPLIES]
    assert missing == [], "say in cli/replies.py what they print with --json"
    assert {*REPLIES} == {name for name, _, _ in COMMANDS}


def test_every_meaning_belongs_to_a_field() -> None:
    said, fields = tomllib.loads(FIELDS.read_text("utf-8")), names()
    known = {field for one in fields.values() for field in one}
    stale = [
        f"{section}.{field}"
        for section, meanings in said.items()
        for field in meanings
        if field not in (known if section == ANYWHERE else fields.get(section, {}))
    ]
    assert stale == []


def test_a_reply_that_is_not_as_described_is_found() -> None:
    assert fault({"id": "x", "steering": []}, Steered, "steer") is None
    assert fault({"id": "x"}, Steered, "steer") == "steer lacks steering of Steered"
    assert fault({"id": 1, "steering": []}, Steered, "steer") == "steer.id is int, not str"
    assert (
        fault({"id": "x", "steering": [], "of": 1}, Steered, "steer")
        == "steer has of, which Steered does not"
    )
    assert fault({"error": {"code": "a", "message": "b", "wanted": "c"}}, FailureShown, "steer") is None


def test_what_every_command_prints_is_as_described(shell: Shell) -> None:
    """`inside` compares each reply with its description; here every command gives at least one."""
    shell.write("ok.dot", pipeline(("a", "echo said"), ("b", "true")))
    shell.write("gate.dot", GATE)
    shell.write("many.jsonl", "{}\n{}\n")
    shell.write("bad.dot", pipeline(("a", "exit 3")))
    for code, words in EVERY:
        before, dashes, after = words.partition(" -- ")
        done = shell.inside(*before.split(), "--json", *([dashes.strip(), *after.split()] if dashes else []))
        assert done.code == code, (words, done)
        assert done.out or words == "messages fine", words  # its steps say nothing
    assert {words.split()[0] for _, words in EVERY} == {*REPLIES}
