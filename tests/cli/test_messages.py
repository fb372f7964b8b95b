"""`onward messages`: what models said, from the command line."""

from __future__ import annotations

import asyncio
import json

from onward.model.chats.message import ChunkKind
from onward.model.ids import called
from onward.testing.conformance.chats.saying import answered, appended, growth, speaking
from onward.testing.drafts import held
from onward.wiring import open_store
from tests.cli.shell import Shell

CHUNKS = [
    (ChunkKind.REASONING, "Hm."),
    (ChunkKind.TEXT, "Let me "),
    (ChunkKind.TEXT, "look.\n"),
    (ChunkKind.TOOL_CALL, '{"name":"ls"}'),
    (ChunkKind.TOOL_RESULT, "a b"),
    (ChunkKind.TEXT, "Done."),
]


async def spoken(db: str, *, is_ended: bool = True) -> None:
    """A run whose model has said something."""
    store = await open_store(db)
    draft = await speaking(store, run_id="spoken")
    await store.messages.flush([growth(draft)._replace(chunks=CHUNKS)])
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
        "Done.\n[interrupted: its process is gone]\n"
    )
    assert "nothing was said yet" in shell.inside("messages", "silent").err
    missing = shell.inside("messages", "nobody")
    assert (missing.code, missing.out) == (1, "")
    assert "there is no run 'nobody'" in missing.err
    assert shell.inside("messages", "spoken", "--after", "-1").code == 2
