"""`[notify]`: what is wrong is said in one sentence, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import InvalidInput
from onward.model.row import NotificationKind
from onward.model.settings import NotifySettings, read_notify

GATE, STOPPED, FINISHED = NotificationKind
HOOK = "https://example.com/hook"


def test_a_command_or_a_url_is_enough() -> None:
    assert read_notify({"command": "say done"}, "f") == NotifySettings(command="say done")
    assert read_notify({"command": ["say", "done"]}, "f").command == ("say", "done")
    found = read_notify({"url": HOOK}, "f")
    assert (found.url, found.on, found.timeout_s) == (HOOK, (GATE, STOPPED, FINISHED), 10.0)


def test_every_key_is_read() -> None:
    table = {"url": HOOK, "on": ["finished", "gate"], "timeout": 3, "secret": "env:HOOK_SECRET"}
    found = read_notify(table, "f")
    assert found == NotifySettings(url=HOOK, on=(GATE, FINISHED), timeout_s=3.0, secret="env:HOOK_SECRET")
    assert read_notify({"command": "x", "env": ["SLACK_*"]}, "f").env == ("SLACK_*",)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("x", "write a table"),
        ({}, "needs a command or a url"),
        ({"command": "x", "url": HOOK}, "one of the two"),
        ({"command": "x", "retries": 3}, "sets retries; its keys are command, url,"),
        *(
            ({"command": bad}, "write a line for the shell, or a list")
            for bad in ("", [], 3, ["a", 1], "a\0")
        ),
        *(({"url": bad}, "write an address") for bad in (3, "", "x", "ftp://a/b", "https://", "http://a b/")),
        ({"url": "http://host:99999/"}, "host or port is not valid"),
        ({"url": "http://host:0/"}, "port 0"),
        ({"url": "https://me:hunter2@example.com/"}, "has a user or a password"),
        ({"command": "x", "on": "gate"}, "write one or more of gate, stopped, finished"),
        ({"command": "x", "on": []}, "write one or more of"),
        ({"command": "x", "on": ["gates"]}, "write one or more of"),
        *(({"command": "x", "timeout": bad}, "from 0.001 to 300") for bad in (0, 301, "5s", True, 1e99)),
        ({"command": "x", "env": "A"}, "write a list of names"),
        ({"command": "x", "env": ["A=B"]}, "write a list of names"),
        ({"url": HOOK, "env": ["A"]}, "sets env, which needs a command"),
        ({"command": "x", "secret": "env:A"}, "sets secret, which needs a url"),
        *(({"url": HOOK, "secret": bad}, "write env:NAME or file:PATH") for bad in ("hunter2", "env:", 3)),
    ],
)
def test_a_bad_table_is_one_sentence_that_names_the_file(table: Any, says: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read_notify(table, "onward.toml")
    said = str(raised.value)
    assert says in said
    assert "onward.toml" in said
    assert said.endswith(".")
    assert "\n" not in said
    assert "hunter2" not in said, "what may be a secret is not shown"
