"""How registered pipelines are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.errors import InvalidInput
from onward.model.ids import Wanted, can_be_registered, check_pipeline_name, read_wanted


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("site", Wanted("site")),
        ("site@1", Wanted("site", 1)),
        ("_a-B-9@9223372036854775807", Wanted("_a-B-9", 2**63 - 1)),
        ("x" * 100, Wanted("x" * 100)),
    ],
)
def test_a_word_names_a_pipeline_and_perhaps_a_version(word: str, wanted: Wanted) -> None:
    assert can_be_registered(word)
    assert read_wanted(word) == wanted
    assert str(wanted) == word


@pytest.mark.parametrize("word", ["", "-a", "a.dot", "a/b", "a b", "é", "x" * 101, "@1", "a\n", "a\0"])
def test_what_could_be_a_file_or_a_flag_is_no_name(word: str) -> None:
    assert not can_be_registered(word)
    with pytest.raises(InvalidInput, match="cannot be the name of a registered pipeline"):
        read_wanted(word)


@pytest.mark.parametrize("version", ["", "0", "-1", "x", "1.5", "9" * 19, "9" * 400, "1@2", "²", "٣"])
def test_what_is_no_number_of_a_version_is_refused_in_few_words(version: str) -> None:
    with pytest.raises(InvalidInput, match="is not a whole number from 1") as refused:
        read_wanted(f"site@{version}")
    assert len(str(refused.value)) < 150


@given(st.text())
def test_a_refusal_of_any_text_can_be_printed(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_pipeline_name(f"{text} ")
    assert str(refused.value).isprintable()
