"""What programs print, in the formats that they document; whatever is strange in it says nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from onward.agents.model import FailureKind, TokenUsage
from onward.agents.programs.output import (
    SAID_CHARACTERS_MAX,
    ClaudeReader,
    CodexReader,
    GeminiReader,
    LineNoted,
    LinesReader,
    Piece,
    ProgramToolAnswered,
    ProgramToolUsed,
    SaidText,
    SessionBegan,
    TextSaid,
    ThoughtSaid,
    TokensCounted,
    TurnEnded,
    TurnFailed,
)
from onward.agents.programs.program import (
    KNOWN_PROGRAMS,
    Program,
    TurnRequest,
    failed,
    input_of,
    model_of,
    words_of,
)
from onward.agents.programs.turn import Lines, event_in
from onward.errors import InvalidInput
from onward.testing.clock import ManualClock

CLAUDE, CODEX, GEMINI = KNOWN_PROGRAMS["claude-code"], KNOWN_PROGRAMS["codex"], KNOWN_PROGRAMS["gemini"]
OWN = Program("mine", "lines", ("./mine",))


def read(reader: Any, *events: dict[str, Any]) -> list[Piece]:
    found: list[Piece] = []
    for event in events:
        pieces: Iterable[Piece] = reader.read(event)
        found += pieces
    return found


def test_claude_codes_messages_and_result_are_read() -> None:
    message = {
        "content": [
            {"type": "thinking", "thinking": "Hm."},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
        ]
    }
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "a b"}]}
    usage = {"input_tokens": 3, "output_tokens": 7, "cache_read_input_tokens": 50}
    usage["cache_creation_input_tokens"] = 20
    found = read(
        ClaudeReader(),
        {"type": "system", "subtype": "init", "session_id": "s", "model": "claude-x", "tools": []},
        {"type": "system", "subtype": "compact_boundary"},
        {"type": "assistant", "session_id": "s", "message": message},
        {"type": "user", "message": {"content": [result]}},
        {"type": "rate_limit_event", "novelty": 1},
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "Done.",
            "session_id": "s2",
            "total_cost_usd": 0.5,
            "usage": usage,
        },
    )
    assert found == [
        SessionBegan("s", "claude-x"),
        ThoughtSaid("Hm.\n"),
        TextSaid("I look.\n\n"),
        ProgramToolUsed("Bash", '{"command":"ls"}'),
        ProgramToolAnswered("a b"),
        SessionBegan("s2"),
        TokensCounted(TokenUsage(input=73, output=7, cached_input=50, cache_write=20), 500_000),
        TurnEnded("Done."),
    ]


def test_what_claude_code_streams_in_parts_is_said_once() -> None:
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi."}}
    whole = {"content": [{"type": "text", "text": "Hi."}]}
    found = read(
        ClaudeReader(), {"type": "stream_event", "event": delta}, {"type": "assistant", "message": whole}
    )
    assert found == [TextSaid("Hi."), TextSaid("\n\n")]


def test_neither_a_subagent_nor_an_error_shown_as_text_is_the_answer() -> None:
    text = [{"type": "text", "text": "Invalid API key"}]
    found = read(
        ClaudeReader(),
        {"type": "assistant", "message": {"content": text}, "parent_tool_use_id": "t"},
        {"type": "assistant", "message": {"content": text, "model": "<synthetic>"}},
    )
    assert found == []


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"subtype": "success", "is_error": True, "result": "Credit balance is too low"}, "Credit balance"),
        ({"subtype": "error_during_execution", "is_error": True, "errors": ["No conversation"]}, "No conv"),
        ({"subtype": "error_max_turns", "is_error": False}, "error_max_turns"),
        ({}, "no reason given"),
    ],
)
def test_a_result_of_claude_code_that_is_no_success_is_trouble(event: dict[str, Any], message: str) -> None:
    (*_, last) = read(ClaudeReader(), {"type": "result", **event})
    assert isinstance(last, TurnFailed)
    assert message in last.message


def test_codex_answers_with_its_last_message() -> None:
    run = {"id": "1", "type": "command_execution", "command": "ls"}
    change = {"id": "2", "type": "file_change", "changes": [{"path": "a.py", "kind": "update"}]}
    found = read(
        CodexReader(),
        {"type": "thread.started", "thread_id": "th"},
        {"type": "turn.started"},
        {"type": "error", "message": "Reconnecting... 1/5"},
        {"type": "item.completed", "item": {"id": "0", "type": "reasoning", "text": "Hm."}},
        {"type": "item.started", "item": run},
        {"type": "item.completed", "item": {**run, "aggregated_output": "a", "exit_code": 1}},
        {"type": "item.completed", "item": change},
        {"type": "item.completed", "item": {"id": "3", "type": "agent_message", "text": "First."}},
        {"type": "item.completed", "item": {"id": "4", "type": "agent_message", "text": "Last."}},
        {"type": "item.completed", "item": {"id": "5", "type": "novelty"}},
        {
            "type": "turn.completed",
            "usage": {"input_tokens": 30, "cached_input_tokens": 10, "output_tokens": 5},
        },
    )
    assert found == [
        SessionBegan("th"),
        TurnFailed("Reconnecting... 1/5"),
        ThoughtSaid("Hm.\n"),
        ProgramToolUsed("shell", "ls"),
        ProgramToolAnswered("a", is_error=True),
        ProgramToolUsed("file_change", "update a.py"),
        TextSaid("First.\n\n"),
        TextSaid("Last.\n\n"),
        TokensCounted(TokenUsage(input=30, output=5, cached_input=10), is_total=True),
        TurnEnded("Last."),
    ]
    assert read(CodexReader(), {"type": "turn.failed", "error": {"message": "No."}}) == [TurnFailed("No.")]


def test_gemini_answers_with_what_it_said_after_its_last_tool() -> None:
    found = read(
        GeminiReader(),
        {"type": "init", "session_id": "g", "model": "gemini-x", "timestamp": "now"},
        {"type": "message", "role": "user", "content": "the prompt"},
        {"type": "message", "role": "assistant", "content": "I look. ", "delta": True},
        {"type": "tool_use", "tool_name": "ls", "tool_id": "1", "parameters": {"path": "."}},
        {"type": "tool_result", "tool_id": "1", "status": "error", "error": {"message": "no"}},
        {"type": "error", "severity": "warning", "message": "slow"},
        {"type": "message", "role": "assistant", "content": "Do", "delta": True},
        {"type": "message", "role": "assistant", "content": "ne.", "delta": True},
        {
            "type": "result",
            "status": "success",
            "stats": {"input_tokens": 9, "output_tokens": 4, "cached": 2, "tool_calls": 1},
        },
    )
    assert found == [
        SessionBegan("g", "gemini-x"),
        TextSaid("I look. "),
        ProgramToolUsed("ls", '{"path":"."}'),
        ProgramToolAnswered("no", is_error=True),
        LineNoted("slow"),
        TextSaid("Do"),
        TextSaid("ne."),
        TokensCounted(TokenUsage(input=9, output=4, cached_input=2)),
        TurnEnded("Done."),
    ]
    whole = {"session_id": "g", "response": "Done.", "stats": {}}
    assert read(GeminiReader(), whole) == [SessionBegan("g"), TextSaid("Done."), TurnEnded("Done.")]
    assert read(GeminiReader(), {"error": {"type": "E", "message": "No."}}) == [
        SessionBegan(""),
        TurnFailed("No."),
    ]


def test_our_own_lines_are_read() -> None:
    clock = ManualClock()
    found = read(
        LinesReader(clock),
        {"type": "session", "id": "s", "model": "tiny"},
        {"type": "text", "text": "Half. "},
        {"type": "reasoning", "text": "Hm."},
        {"type": "tool", "name": "ls", "text": "."},
        {"type": "tool_result", "text": "a"},
        {"type": "log", "text": "warm"},
        {"type": "usage", "input": 1, "cached": 5, "output": 1, "reasoning": 3, "cost_usd": "free"},
        {"type": "result", "outcome": "fail", "notes": "", "novelty": 1},
        {"type": "error", "kind": "rate_limit", "message": "Later.", "retry_after_s": 60},
    )
    assert found == [
        SessionBegan("s", "tiny"),
        TextSaid("Half. "),
        ThoughtSaid("Hm."),
        ProgramToolUsed("ls", "."),
        ProgramToolAnswered("a"),
        LineNoted("warm"),
        TokensCounted(TokenUsage(input=5, output=3, cached_input=5, reasoning=3)),
        TurnEnded("Half. ", {"outcome": "fail"}),
        TurnFailed("Later.", "rate_limit", clock.now_us() + 60_000_000),
    ]


def test_of_what_a_program_says_without_end_the_end_is_kept() -> None:
    said, reader = SaidText(), LinesReader(ManualClock())
    for number in range(40):
        said.add(f"{number:02}" + "x" * 1_000_000)
        list(reader.read({"type": "text", "text": f"{number:02}" + "x" * 1_000_000}))
    assert len(said.text) < SAID_CHARACTERS_MAX + 1_000_002
    assert said.text.startswith("31x")
    assert said.left_out == 31 * 1_000_002
    noted, ended = reader.read({"type": "result", "outcome": "success"})
    assert noted == LineNoted("the answer lacks its beginning: the first 31,000,062 characters of it")
    assert ended == TurnEnded(said.text, {"outcome": "success"})


@pytest.mark.parametrize(
    "reader", [ClaudeReader(), CodexReader(), GeminiReader(), LinesReader(ManualClock())]
)
@pytest.mark.parametrize(
    "event",
    [
        {"type": 3},
        {"type": "result", "usage": [], "result": {"a": 1}, "stats": 7, "text": None, "errors": 5},
        {"type": "assistant", "message": {"content": "text"}},
        {"type": "user", "message": {"content": [None, {"type": "tool_result", "content": 7}]}},
        {"type": "item.completed", "item": None},
        {"type": "turn.completed", "usage": {"input_tokens": -5, "output_tokens": True}},
        {"type": "message", "role": "assistant"},
        {"type": "tool_use"},
        {"type": "error"},
        {"type": "usage", "input": "many", "cost_usd": float("inf")},
    ],
)
def test_no_event_of_an_unexpected_form_is_an_error(reader: Any, event: dict[str, Any]) -> None:
    for piece in read(reader, event):
        assert not isinstance(piece, TokensCounted) or piece.usage == TokenUsage()


def test_lines_are_put_together_and_one_that_is_too_long_is_dropped() -> None:
    lines = Lines(bytes_max=10)
    assert list(lines.feed(b"ab\ncd")) == [b"ab"]
    assert list(lines.feed(b"e\n" + b"x" * 8)) == [b"cde"]
    assert list(lines.feed(b"yyy")) == []
    assert list(lines.feed(b"y" * 100 + b"\nlast")) == []
    assert lines.dropped == 1
    assert list(lines.finish()) == [b"last"]
    assert list(lines.finish()) == []


@pytest.mark.parametrize("line", [b"", b"{", b"[1]", b'"a"', b"\xff\xfe", b"[" * 100_000, b"warning: old"])
def test_a_line_that_is_no_object_is_no_event(line: bytes) -> None:
    assert event_in(line) is None


def test_the_prompt_is_never_on_the_command_line() -> None:
    for program in (CLAUDE, CODEX, GEMINI, OWN):
        asked = TurnRequest("--help; $(rm x)", "s-1", "m")
        assert not [word for word in words_of(program, asked) if "help" in word]
        assert b"--help; $(rm x)" in input_of(program, asked)


def test_the_command_lines_are_those_that_the_programs_document() -> None:
    asked, again = TurnRequest("Do it."), TurnRequest("More.", "s-1", "m-1")
    assert words_of(CLAUDE, asked) == ["claude", "-p", "--output-format", "stream-json", "--verbose"]
    assert words_of(CLAUDE, again)[-2:] == ["--model=m-1", "--resume=s-1"]
    assert words_of(CODEX, asked) == ["codex", "exec", "--json", "-"]
    assert words_of(CODEX, again) == ["codex", "exec", "--json", "--model=m-1", "resume", "s-1", "-"]
    assert words_of(GEMINI, asked) == ["gemini", "--output-format", "stream-json"]
    assert words_of(GEMINI, again)[-2:] == ["--model=m-1", "--resume=s-1"]


def test_a_node_cannot_put_a_flag_onto_the_command_line_as_its_model() -> None:
    with pytest.raises(InvalidInput, match="is not a valid name"):
        model_of(CLAUDE, "a", model="--dangerously-skip-permissions", provider="")
    with pytest.raises(InvalidInput, match="asks models of anthropic"):
        model_of(CLAUDE, "a", model="openai:gpt-5", provider="")
    assert model_of(CLAUDE, "a", model="anthropic:opus", provider="") == "opus"
    assert model_of(OWN, "a", model="qwen:7b", provider="") == "qwen:7b"


@pytest.mark.parametrize(
    ("program", "message", "kind"),
    [
        (CLAUDE, "Invalid API key · Please run /login", FailureKind.AUTH),
        (CLAUDE, "Credit balance is too low", FailureKind.CREDIT),
        (CLAUDE, "Claude AI usage limit reached|1760000400", FailureKind.RATE_LIMIT),
        (
            CLAUDE,
            'API Error: 529 {"type":"error","error":{"type":"overloaded_error"}}',
            FailureKind.TRANSIENT,
        ),
        (CLAUDE, "Prompt is too long", FailureKind.TOO_LONG),
        (CLAUDE, "error: unknown option '--verbos'", FailureKind.REQUEST),
        (CODEX, "unexpected status 401 Unauthorized: Missing bearer", FailureKind.AUTH),
        (CODEX, "You've hit your usage limit. Try again in 2 hours 5 minutes.", FailureKind.RATE_LIMIT),
        (CODEX, "Quota exceeded. Check your plan and billing details.", FailureKind.CREDIT),
        (CODEX, "stream disconnected before completion: closed", FailureKind.TRANSIENT),
        (CODEX, "Not inside a trusted directory and --skip-git-repo-check …", FailureKind.REQUEST),
        (GEMINI, "API key not valid. Please pass a valid API key.", FailureKind.AUTH),
        (GEMINI, "RESOURCE_EXHAUSTED: retry", FailureKind.RATE_LIMIT),
        (GEMINI, "something else", FailureKind.CUT),
    ],
)
def test_what_a_program_says_of_its_failure_has_a_kind(
    program: Program, message: str, kind: FailureKind
) -> None:
    failure = failed(program, TurnFailed(message), now_us=0).failure
    assert failure.kind is kind
    assert failure.message.startswith(f"{program.name} failed ({message[:10]}")


def test_a_refused_login_says_how_to_log_in_and_never_shows_a_key() -> None:
    message = failed(
        CODEX, TurnFailed("401 Unauthorized: bad key sk-secret-1234567890"), now_us=0
    ).failure.message
    assert "codex login" in message
    assert "1234567890" not in message


def test_a_rate_limit_says_when_it_ends() -> None:
    def at_us(message: str) -> int | None:
        return failed(CLAUDE, TurnFailed(message), now_us=0).failure.retry_at_us

    assert at_us("Claude AI usage limit reached|1760000400") == 1_760_000_400_000_000
    assert at_us("usage limit. Try again in 1 day 2 hours 5 minutes.") == (86_400 + 7_200 + 300) * 1_000_000
    assert at_us("429; please retry after 30s") == 30_000_000
    assert at_us("429 Too Many Requests") is None


def test_exit_codes_of_gemini_have_kinds() -> None:
    kinds = [failed(GEMINI, TurnFailed("no"), now_us=0, exit_code=code).failure.kind for code in (41, 42, 1)]
    assert kinds == [FailureKind.AUTH, FailureKind.REQUEST, FailureKind.CUT]


@pytest.mark.parametrize(
    "message",
    [
        "No conversation found with session ID: 33a81b24",
        "Error: no rollout found for thread id 019c",
        'Error resuming session: Invalid session identifier "x".',
        "session s-1 was not found",
    ],
)
def test_a_lost_session_is_told_from_other_failures(message: str) -> None:
    assert failed(CLAUDE, TurnFailed(message), now_us=0).is_session_lost
    assert not failed(CLAUDE, TurnFailed("the file was not found"), now_us=0).is_session_lost
