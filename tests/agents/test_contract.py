"""What an answer means: lines that a small model can write, or a block of JSON."""

from __future__ import annotations

import pytest

from onward.agents.step.contract import (
    FIRST_SYSTEM,
    SYSTEM,
    UnreadableAnswer,
    first_words,
    instructions,
    read_answer,
    read_structured,
)
from onward.model.events import StepStatus
from onward.testing.script import CHARACTERS_PER_TOKEN
from tests.pipeline.reading import graph_of


def test_a_plain_answer_is_a_success_with_its_text() -> None:
    result = read_answer("All done.", "a")
    assert result.status is StepStatus.SUCCESS
    assert result.response == "All done."
    assert result.context_updates == {"last_stage": "a", "last_response": "All done."}


@pytest.mark.parametrize(
    "answer",
    [
        "It broke.\nOUTCOME: fail\nNOTE: no disk",
        "It broke.\n\n**OUTCOME:** fail\n- NOTE: no disk\n",
        "It broke.\noutcome: FAIL\nnote: no disk",
        'It broke.\n```json\n{"outcome": "fail", "notes": "no disk"}\n```',
    ],
)
def test_a_failure_is_read_in_each_form(answer: str) -> None:
    result = read_answer(answer, "a")
    assert (result.status, result.failure_reason) == (StepStatus.FAIL, "no disk")
    assert result.context_updates["last_response"] == "It broke."


def test_values_are_json_where_they_can_be_and_text_where_not() -> None:
    result = read_answer('Ok\nSET n = 3\nSET who = Ann Lee\nSET list = ["a", 1]\nSET half = {"a"', "a")
    found = {key: result.context_updates[key] for key in ("n", "who", "list", "half")}
    assert found == {"n": 3, "who": "Ann Lee", "list": ["a", 1], "half": '{"a"'}


def test_lines_in_the_middle_of_an_answer_are_text() -> None:
    result = read_answer("OUTCOME: fail\nis what it printed, but all is well.", "a")
    assert result.status is StepStatus.SUCCESS
    assert str(result.context_updates["last_response"]).startswith("OUTCOME: fail")


def test_json_that_says_nothing_about_the_step_is_part_of_the_answer() -> None:
    result = read_answer('Here it is:\n```json\n{"colour": "blue"}\n```', "a")
    assert result.status is StepStatus.SUCCESS
    assert "colour" not in result.context_updates


@pytest.mark.parametrize(
    "answer",
    [
        "x\nOUTCOME: maybe",
        "x\nSET 3 = 4",
        'x\n```json\n{"outcome": "fail", }\n```',
        'x\n```json\n{"context_updates": [1]}\n```',
        'x\n```json\n{"suggested_next_ids": "b"}\n```',
    ],
)
def test_facts_that_contradict_the_contract_are_named(answer: str) -> None:
    with pytest.raises(UnreadableAnswer):
        read_answer(answer, "a")


EARLIER = 'It printed:\n```json\n{"outcome": "fail"}\n```\nand then'


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (f'{EARLIER} it worked.\n```json\n{{"outcome": "partial_success", "notes": "n"}}\n```', EARLIER),
        (f'{EARLIER}\n```\n{{\n  "outcome": "partial_success",\n  "notes": "n"}}```\n\n', EARLIER),
        (
            '```\n{not JSON\n```\n```onward\n{"status": "partial_success", "notes": "n"}\n```',
            "```\n{not JSON",
        ),
        ('Ok ```json\n{"outcome": "partial_success", "notes": "n"}\n```', "Ok"),
    ],
)
def test_only_the_last_block_of_an_answer_says_what_came_of_the_step(answer: str, text: str) -> None:
    result = read_answer(answer, "a")
    assert (result.status, result.notes) == (StepStatus.PARTIAL_SUCCESS, "n")
    assert str(result.context_updates["last_response"]).startswith(text)


@pytest.mark.parametrize("end", [" it worked.", "\n```sh\nls {}\n```", "\n```\nNo object }\n```", "\n```"])
def test_a_block_that_is_not_at_the_end_is_a_part_of_the_text(end: str) -> None:
    result = read_answer(EARLIER + end, "a")
    assert result.status is StepStatus.SUCCESS
    assert str(result.context_updates["last_response"]).startswith(EARLIER)


def test_what_is_added_to_every_request_is_short() -> None:
    """A small conversation would pay for it again and again: 86 tokens were a fifth of one."""
    graph = graph_of("digraph { a -> b; b -> exit; exit [shape=Msquare] }")
    last = instructions(graph.outgoing("b"), has_later=False)
    assert len(f"{SYSTEM}\n{instructions(graph.outgoing('a'))}") / CHARACTERS_PER_TOKEN <= 50
    assert len(f"{SYSTEM}\n{last}") / CHARACTERS_PER_TOKEN <= 40
    assert "SET" not in last


def test_a_step_that_was_begun_with_other_words_continues() -> None:
    """The hash of its definition is the one that older processes stored."""
    graph = graph_of('digraph { a [prompt="Say it"]; a -> b [label="yes"]; a -> c [label="no"] }')
    words = (
        "You work on one step of a larger plan. Do what the step asks, and nothing else.\n\n"
        "Answer the request. If you could not do what was asked, end your answer with a line `OUTCOME: fail` "
        "and a line `NOTE:` with the reason.\n"
        "End your answer with a line `NEXT:` and one of these words: yes, no.\n"
        "To hand a value to later steps, add a line `SET name = value`."
    )
    assert f"{FIRST_SYSTEM}\n\n{first_words(graph.outgoing('a'))}" == words


@pytest.mark.parametrize(
    "answer",
    [
        "Done.\nSET graph.goal = another",
        "Done.\nSET outcome = fail",
        "Done.\nSET internal.retry_count.a = 0",
        'Done.\n```json\n{"outcome": "success", "context_updates": {"big": 1234567890123456789012}}\n```',
        'Done.\n```json\n{"outcome": "success", "context_updates": {"": 1}}\n```',
    ],
)
def test_values_that_no_step_can_hand_on_are_named(answer: str) -> None:
    """The step would fail of them for good, and no resume would get past the answer."""
    with pytest.raises(UnreadableAnswer, match="context"):
        read_answer(answer, "a")


def test_values_of_a_structured_answer_that_no_step_can_hand_on_are_named() -> None:
    with pytest.raises(UnreadableAnswer, match=r"graph\.goal"):
        read_structured('{"verdict": "fine", "context_updates": {"graph.goal": 1}}', "a", {"type": "object"})
