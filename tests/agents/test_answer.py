"""What chunks of many servers come to, without a server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onward.agents.model import (
    AnswerCollector,
    Failure,
    FailureKind,
    Finished,
    FinishReason,
    ModelAnswer,
    ModelFailed,
    ModelRequest,
    Reasoning,
    ReasoningDelta,
    Streamed,
    Text,
    TextDelta,
    TokenUsage,
    ToolCall,
    user,
)
from onward.agents.openai import OpenAIAnswer
from onward.agents.refusal import AskedModel, ProviderResponse
from onward.agents.wire import UNREADABLE, ExchangeFailed, ResponseReader, SseReader

ASKED = ModelRequest(model="acme:small", messages=(user("Hi"),))
HEAD = ProviderResponse(status=200, headers={"content-type": "text/event-stream"})


def delta(finish: str | None = None, **new: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": new, "finish_reason": finish}]}


def tool(index: int | None = None, id: str | None = None, **function: Any) -> dict[str, Any]:
    return delta(tool_calls=[{"index": index, "id": id, "function": function}])


def answer_of(*chunks: dict[str, Any]) -> ModelAnswer:
    """The whole answer that the chunks make, with [DONE] after them."""
    reading, collecting = (
        ResponseReader(ASKED, AskedModel("acme", "small"), OpenAIAnswer()),
        AnswerCollector(),
    )
    reading.begin(HEAD)
    body = (
        b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    )
    for piece in [*reading.feed(body), *reading.end()]:
        collecting.add(piece)
    assert collecting.finished is not None
    return ModelAnswer(message=collecting.message(), finished=collecting.finished)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_comes_under_two_names(name: str) -> None:
    answer = answer_of(delta(**{name: "hm "}), delta(**{name: "so"}), delta(content="Yes."))
    assert [part.__class__.__name__ for part in answer.message.parts] == ["Reasoning", "Text"]
    assert answer.text == "Yes."


def test_content_may_be_a_list_of_parts() -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "Yes"}, "odd"]
    assert answer_of(delta(content=parts)).text == "Yes"


def test_a_tool_call_is_put_together_by_its_index() -> None:
    answer = answer_of(
        tool(0, "a", name="look", arguments=""),
        tool(1, "b", name="leap", arguments="{"),
        tool(0, arguments='{"at":'),
        tool(1, arguments="}"),
        tool(0, arguments="1}"),
        delta("tool_calls"),
    )
    assert answer.tool_calls == (ToolCall("a", "look", '{"at":1}'), ToolCall("b", "leap", "{}"))


def test_tool_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    answer = answer_of(
        tool(None, "a", name="look", arguments="{"), tool(None, arguments="}"), tool(None, "b", name="leap")
    )
    assert answer.tool_calls == (ToolCall("a", "look"), ToolCall("b", "leap"))


def test_tool_calls_that_all_have_the_index_0_are_told_apart_by_their_ids() -> None:
    answer = answer_of(tool(0, "a", name="look", arguments="{}"), tool(0, "b", name="leap", arguments="{}"))
    assert answer.tool_calls == (ToolCall("a", "look"), ToolCall("b", "leap"))


def test_a_tool_call_without_an_id_gets_one_and_arguments_may_be_an_object() -> None:
    answer = answer_of(tool(0, name="look", arguments={"at": 1}))
    assert answer.tool_calls == (ToolCall("call_0", "look", '{"at":1}'),)


def test_tool_calls_end_an_answer_even_if_the_server_says_stop() -> None:
    answer = answer_of(tool(0, "a", name="look"), delta("stop"))
    assert answer.finished.finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.REFUSAL),
        ("STOP", FinishReason.STOP),
        ("something new", FinishReason.OTHER),
    ],
)
def test_the_end_has_a_reason(said: str, meant: FinishReason) -> None:
    assert answer_of(delta(content="Yes"), delta(said)).finished.finish_reason is meant


def test_a_refusal_is_text_and_the_reason_of_the_end() -> None:
    answer = answer_of(delta(refusal="I "), delta(refusal="cannot."), delta("stop"))
    assert (answer.text, answer.finished.finish_reason) == ("I cannot.", FinishReason.REFUSAL)


def test_an_answer_that_was_all_thought_up_to_its_ceiling_is_no_failure() -> None:
    answer = answer_of(delta(reasoning="hm"), delta("length"))
    assert (answer.text, answer.finished.finish_reason) == ("", FinishReason.LENGTH)


def test_usage_is_read_with_its_details_or_not_at_all() -> None:
    usage: dict[str, Any] = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 99, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    finished = answer_of(delta(content="x"), {"choices": [], "usage": usage}).finished
    assert finished.usage == TokenUsage(input=10, output=5, cached_input=10, reasoning=3)
    assert finished.note == ""
    odd = usage | {"completion_tokens_details": {"reasoning_tokens": -3}}
    finished = answer_of(delta(content="x"), {"choices": [], "usage": odd}).finished
    assert (finished.usage.is_estimated, finished.note) == (True, UNREADABLE)


def test_the_last_usage_counts() -> None:
    """Some servers send a running count with every chunk."""
    running = [
        delta(content="x") | {"usage": {"prompt_tokens": 4, "completion_tokens": n}} for n in (1, 2, 3)
    ]
    assert answer_of(*running).finished.usage == TokenUsage(input=4, output=3)


def test_other_choices_and_null_fields_are_passed_over() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}], "usage": None, "error": None}
    assert answer_of(other, delta(content=None, tool_calls=None), delta(content="x")).text == "x"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "x", "type": "server_error"}, FailureKind.TRANSIENT),
        ({"message": "x", "code": 429}, FailureKind.RATE_LIMIT),
        ({"message": "x", "code": "502"}, FailureKind.TRANSIENT),
        ({"message": "x", "type": "invalid_request_error"}, FailureKind.REQUEST),
        ({"message": "x", "code": "context_length_exceeded"}, FailureKind.TOO_LONG),
        ("it broke", FailureKind.TRANSIENT),
    ],
)
def test_an_error_inside_an_answer_is_classified(error: Any, kind: FailureKind) -> None:
    with pytest.raises(ModelFailed) as caught:
        answer_of(delta(content="Yes"), {"error": error})
    assert caught.value.failure.kind is kind
    assert caught.value.failure.may_have_cost


@pytest.mark.parametrize(
    "event", [b"{", b"[]", b"7", b'{"choices": 7}', b'{"choices": [{"delta": 1}]}', b"\xff"]
)
def test_an_event_of_another_shape_is_no_answer(event: bytes) -> None:
    assert _failure(b"data: " + event + b"\n\n").kind is FailureKind.CUT


def test_a_chunk_that_is_itself_an_error_is_one() -> None:
    with pytest.raises(ModelFailed) as caught:
        answer_of({"object": "error", "message": "maximum context length", "code": 400})
    assert caught.value.failure.kind is FailureKind.TOO_LONG


@given(st.binary())
@example(b"data: [DONE]\n\n")
def test_whatever_comes_is_an_answer_or_a_failure(body: bytes) -> None:
    assert _failure(body).kind in (FailureKind.CUT, FailureKind.EMPTY)


def _failure(body: bytes) -> Failure:
    reading = ResponseReader(ASKED, AskedModel("acme", "small"), OpenAIAnswer())
    reading.begin(HEAD)
    try:
        pieces: list[Streamed] = [*reading.feed(body), *reading.end()]
    except ExchangeFailed as trouble:
        return reading.broken(trouble)
    raise AssertionError(f"{pieces} is no answer")


@given(st.lists(st.text(alphabet="ab \u00e9\U0001f600\r"), max_size=5), st.data())
def test_however_the_bytes_are_cut_the_events_are_the_same(texts: list[str], data: st.DataObject) -> None:
    sent = [text.rstrip("\r").encode() or b"x" for text in texts]
    body = b"".join(b": comment\r\n" + b"data: " + one + b"\r\n\r\n" for one in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    reader, came = SseReader(), list[bytes]()
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        came += reader.feed(body[start:end])
    assert came + reader.finish() == [one.rstrip(b"\r") for one in sent]


def test_a_byte_order_mark_before_the_first_event_is_no_part_of_it() -> None:
    """Else the beginning of the answer would be missing."""
    for size in (1, 2, 100):
        reader, sent = SseReader(), "\N{BYTE ORDER MARK}data: one\n\ndata: two\n\n".encode()
        pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
        assert [event for piece in pieces for event in reader.feed(piece)] == [b"one", b"two"]


def test_the_lines_of_one_event_are_joined() -> None:
    assert SseReader().feed(b"data: a\ndata:b\n\n") == [b"a\nb"]


def test_text_reasoning_and_calls_keep_their_order() -> None:
    collecting = AnswerCollector()
    for piece in (TextDelta("a"), TextDelta("b"), ToolCall("1", "look"), TextDelta("c")):
        collecting.add(piece)
    assert [part.__class__.__name__ for part in collecting.message().parts] == ["Text", "ToolCall", "Text"]


def test_a_stored_piece_comes_back_as_it_was() -> None:
    kinds = [
        TextDelta("a"),
        ToolCall("1", "look"),
        Finished(usage=TokenUsage(), finish_reason=FinishReason.STOP, model="m"),
    ]
    assert msgspec.json.decode(msgspec.json.encode(kinds), type=list[Streamed]) == kinds


def test_a_signature_ends_the_reasoning_before_it_and_may_stand_alone() -> None:
    collecting = AnswerCollector()
    for piece in (
        ReasoningDelta("six "),
        ReasoningDelta("times seven"),
        ReasoningDelta("", "proof"),
        TextDelta("42"),
        ReasoningDelta("", "alone"),
        TextDelta("!"),
    ):
        collecting.add(piece)
    assert collecting.message().parts == (
        Reasoning("six times seven", "proof"),
        Text("42"),
        Reasoning("", "alone"),
        Text("!"),
    )
