"""Messages of chats: ids that do not depend on who derives them, and how a message was read."""

from __future__ import annotations

import pytest

from onward.errors import StoreCorrupt
from onward.model.chat import (
    NOT_READ,
    ChunkKind,
    MessageReading,
    Part,
    answer_to,
    facts_of,
    inputs_of,
    keyed_message_id,
    read_reading,
    run_of_message,
    text_of,
    write_reading,
)
from onward.model.ids import RUN_ID_OWN, Identity, keyed_run_id
from tests.machine.play import created

AT_US = 1_700_000_000_000_000


def test_a_message_sent_again_under_its_key_has_the_same_id() -> None:
    assert keyed_message_id("ann", "k") == keyed_message_id("ann", "k")
    assert len({keyed_message_id(by, key) for by in ("ann", "bob") for key in ("k", "l")}) == 4


def test_a_message_starts_one_run_whoever_starts_it() -> None:
    assert run_of_message("m1", AT_US) == run_of_message("m1", AT_US)
    assert run_of_message("m1", AT_US) != run_of_message("m2", AT_US)
    assert RUN_ID_OWN.fullmatch(run_of_message("m1", AT_US))


def test_a_run_asked_for_under_a_key_has_the_same_id_each_time() -> None:
    assert keyed_run_id("ann", "k") == keyed_run_id("ann", "k")
    assert len({keyed_run_id(by, key) for by in ("ann", "bob") for key in ("k", "l")}) == 4


def test_what_is_said_about_a_message_is_said_once() -> None:
    assert answer_to("m1", "plan") == answer_to("m1", "plan")
    assert answer_to("m1", "plan") != answer_to("m1", "question")


def test_a_database_has_a_short_name_for_files() -> None:
    assert Identity("a").short == Identity("a", unmarked_until_us=9).short != Identity("b").short


def test_what_a_message_says_is_its_text_alone() -> None:
    parts = [
        Part(ChunkKind.REASONING, "Hm."),
        Part(ChunkKind.TEXT, "Yes"),
        Part(ChunkKind.TEXT, ", you may."),
    ]
    assert text_of(parts) == "Yes, you may."


def test_a_reading_is_read_as_it_was_stored() -> None:
    reading = MessageReading(intent="build", planned_agents=("writer",), has_files=True)
    assert read_reading(write_reading(reading)) == reading
    assert read_reading("") == NOT_READ


def test_a_reading_from_before_pipelines_named_intents_is_read() -> None:
    old = '{"intent":"build","scope":"full","by":"rules","pipeline":"site","version":1,"has_files":false}'
    assert read_reading(old) == MessageReading(
        intent="build", scope="full", by="rules", pipeline="site", version=1
    )


def test_a_reading_that_was_damaged_is_told() -> None:
    with pytest.raises(StoreCorrupt, match="how a message was read is damaged"):
        read_reading("{")


def test_a_run_knows_the_message_that_started_it() -> None:
    reading = MessageReading(intent="build", scope="styling", planned_agents=("writer",))
    facts = facts_of(created(inputs_of(reading, "Build it.")))
    assert (facts.intent, facts.scope, facts.user_message) == ("build", "styling", "Build it.")
    assert facts.planned_agents == ("writer",)


def test_values_that_a_step_changed_into_something_else_say_nothing() -> None:
    odd = {"intent": 7, "scope": 3, "user_message": ["hi"], "planned_agents": "writer"}
    facts = facts_of(created(odd))
    assert (facts.intent, facts.scope, facts.user_message, facts.planned_agents) == (None, None, None, ())
    assert facts_of(created(inputs_of(NOT_READ, ""))).intent is None
    assert facts_of(created({"planned_agents": ["a", 1]})).planned_agents == ("a",)
