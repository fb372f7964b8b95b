"""`onward messages`: what models said, from the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from onward.model.chat import ChunkKind
from onward.model.ids import called
from onward.wiring import open_store
from tests.cli.shell import Shell
from tests.conformance.drafts import held
from tests.conformance.messages import answered, appended, growth, speaking

CHUNKS = [
    (ChunkKind.REASONING, "Hm."),
    (ChunkKind.TEXT, "Let me "),
    (ChunkKind.TEXT, "look.\n"),
    (ChunkKind.TOOL_CALL, '{"name":"ls"}'),
    (ChunkKind.TOOL_RESULT, "a b"),
    (ChunkKind.TEXT, "Done."),
]


async def spoken(db: str, *, is_ended: bool = True, chunks: Sequence[tuple[ChunkKind, str]] = CHUNKS) -> None:
    """A run whose model has said something."""
    store = await open_store(db)
    draft = await speaking(store, run_id="spoken")
    await store.messages.flush([growth(draft)._replace(chunks=chunks)], 1)
    if is_ended:
        await appended(store, draft, answered())
    await held(store, "silent")
    await store.close()


def test_what_was_said_is_printed_under_its_call(any_shell: Shell) -> None:
    asyncio.run(spoken(any_shell.db))
    assert any_shell.inside("messages", "spoken").out == (
        f"==> {called('spoken')} start#1 m1, gpt <==\n"
        "[reasoning] Hm.\n"
        "Let me look.\n"
        '[tool call] {"name":"ls"}\n'
        "[tool result] a b\n"
        "Done.\n"
    )


def test_with_json_each_piece_has_its_position_and_after_it_the_rest_follows(shell: Shell) -> None:
    asyncio.run(spoken(shell.db))
    pieces = [json.loads(line) for line in shell.inside("messages", "spoken", "--json").out.splitlines()]
    assert [piece["position"] for piece in pieces] == list(range(1, 9))
    assert (pieces[-1]["kind"], pieces[-1]["state"]) == ("end", "complete")
    rest = shell.inside("messages", "run/spoken", "--after", "6", "--json").out.splitlines()
    assert [json.loads(line) for line in rest] == pieces[6:]


def test_what_is_cut_off_says_so_and_silence_too(shell: Shell) -> None:
    """The process that streamed is gone; whoever follows the run is not left waiting."""
    asyncio.run(spoken(shell.db, is_ended=False))
    assert shell.inside("messages", "spoken", "--follow").out.endswith(
        "Done.\n[interrupted: its process ended]\n"
    )
    assert "no messages yet" in shell.inside("messages", "silent").err
    missing = shell.inside("messages", "nobody")
    assert (missing.code, missing.out) == (1, "")
    assert "there is no run 'nobody'" in missing.err
    assert shell.inside("messages", "spoken", "--after", "-1").code == 2


def test_a_terminal_shows_the_escapes_of_a_model_and_obeys_none(shell: Shell) -> None:
    """Nor are they hidden; a program that reads the output gets the text as it is."""
    said = "\x1b[2J\x1b]0;owned\x07never ended: \x1b]0;rm -rf \u202e"
    asyncio.run(spoken(shell.db, chunks=[(ChunkKind.TEXT, said[:9]), (ChunkKind.TEXT, said[9:])]))
    terminal = shell.terminal("messages", "spoken")
    assert terminal.end().code == 0
    printed = terminal.bytes.decode()
    assert "\\x1b[2J\\x1b]0;owned\\x07never ended: \\x1b]0;rm -rf \\u202e" in printed
    assert not [one for one in "\x1b\x07\u202e" if one in printed]
    pieces = [json.loads(line) for line in shell.inside("messages", "spoken", "--json").out.splitlines()]
    assert "".join(piece["text"] for piece in pieces if piece["kind"] == "text") == said
