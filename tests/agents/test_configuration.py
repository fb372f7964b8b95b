"""Settings of models: where they come from, and what is said when they cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onward.agents.prices import Rates
from onward.agents.providers import READERS, THEIRS_ONLY, full_name, read_providers
from onward.config import AGENT_SETTINGS, load_settings
from onward.errors import InvalidInput
from onward.model.values import KNOWN_PROVIDERS
from onward.redact.redactor import NOTHING_SECRET
from onward.wiring import open_models, open_prices

PAGE = Path(__file__).parents[2] / "docs/configuration.md"
LOCAL = {"base_url": "http://127.0.0.1:8000/v1"}
KNOWN = read_providers({"local": LOCAL})


@pytest.mark.parametrize(
    ("name", "url", "key"),
    [
        ("openai", "https://api.openai.com/v1", "env:OPENAI_API_KEY"),
        ("anthropic", "https://api.anthropic.com", "env:ANTHROPIC_API_KEY"),
        ("google", "https://generativelanguage.googleapis.com", "env:GEMINI_API_KEY"),
    ],
)
def test_a_known_provider_needs_only_its_key(name: str, url: str, key: str) -> None:
    known = read_providers({})[name]
    assert (known.base_url, known.format, known.key, known.needs_key) == (url, name, key, True)


@pytest.mark.parametrize("name", KNOWN_PROVIDERS)
def test_another_server_for_a_known_provider_gets_its_key_if_there_is_one(name: str) -> None:
    known = read_providers({}, base_urls={name: "http://127.0.0.1:1234/v1/"})[name]
    key = f"env:{KNOWN_PROVIDERS[name].key_variable}"
    assert (known.base_url, known.key, known.needs_key) == ("http://127.0.0.1:1234/v1", key, False)


@pytest.mark.parametrize("name", KNOWN_PROVIDERS)
def test_a_known_key_does_not_go_to_an_address_that_a_file_names(name: str) -> None:
    key = f"env:{KNOWN_PROVIDERS[name].key_variable}"
    assert read_providers({name: LOCAL})[name].key is None
    assert read_providers({name: {**LOCAL, "key": key}})[name].key == key
    assert read_providers({name: {"total_s": 5}})[name].key == key


@pytest.mark.parametrize(
    ("format", "header"),
    [("openai", "authorization"), ("anthropic", "X-Api-Key"), ("google", "x-goog-api-key")],
)
def test_the_header_of_the_key_is_not_set_by_hand(format: str, header: str) -> None:
    with pytest.raises(InvalidInput, match="write the key under `key`"):
        read_providers({"local": {**LOCAL, "format": format, "headers": {header: "env:KEY"}}})


def test_every_setting_of_a_provider_is_read() -> None:
    table = {
        **LOCAL,
        "key": "file:~/key",
        "headers": {"X-Team": "search"},
        "connect_s": 1,
        "first_byte_s": 2.5,
        "between_s": 3,
        "total_s": 4,
        "ceiling": "max_completion_tokens",
        "reasoning": True,
        "stream_usage": False,
        "prefill": True,
        "tools": False,
        "format": "anthropic",
        "prompt_cache": False,
    }
    assert table.keys() == READERS.keys() - THEIRS_ONLY
    local = read_providers({"local": table})["local"]
    assert (local.limits.first_byte_s, local.limits.total_s) == (2.5, 4)
    assert (local.ceiling, local.reasoning, local.stream_usage) == ("max_completion_tokens", True, False)
    assert local.prefill
    assert not local.tools
    assert (local.format, local.prompt_cache) == ("anthropic", False)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("http://127.0.0.1", "write a table [providers.local]"),
        ({}, "has no base_url"),
        ({"base_url": 8000}, "write an address in quotes"),
        ({"base_url": "127.0.0.1:8000"}, "not an http address"),
        ({"base_url": "ftp://example.com"}, "not an http address"),
        ({"base_url": "http://"}, "not an http address"),
        ({"base_url": "http://example.com:99999/v1"}, "not an address"),
        ({"base_url": "http://example.com/v1?a=b"}, "has a query or a fragment"),
        ({"base_url": "http://me:hunter2@example.com/v1"}, "contains a user"),
        ({"base_url": "http://exam\tple.com/v1"}, "not an http address"),
        ({"base_url": "http://a.example\\@b.example/v1"}, "contains a user"),
        ({**LOCAL, "key": "sk-1234567890"}, "never the key itself"),
        ({**LOCAL, "key": "env:"}, "never the key itself"),
        ({**LOCAL, "key": "env:NOT A NAME"}, "never the key itself"),
        ({**LOCAL, "key": 7}, "write a reference"),
        ({**LOCAL, "headers": ["X"]}, "not a table"),
        ({**LOCAL, "headers": {"X": "a\r\nY: b"}}, "cannot be sent"),
        ({**LOCAL, "headers": {"X Y": "a"}}, "cannot be sent"),
        ({**LOCAL, "headers": {"authorization": "Bearer x"}}, "write a reference"),
        ({**LOCAL, "headers": {"host": "example.com"}}, "leave it out"),
        ({**LOCAL, "format": "bedrock"}, "write one of openai, anthropic, google"),
        ({**LOCAL, "provider": "bedrock"}, "only apply if format is pydantic-ai"),
        ({"format": "pydantic-ai", "headers": {}}, "only apply if format is not pydantic-ai"),
        ({"format": "pydantic-ai", "provider": "Bedrock!"}, "write a provider of pydantic-ai"),
        ({"format": "pydantic-ai", "options": ["x"]}, "not a table of strings and numbers"),
        ({"format": "pydantic-ai", "options": {"api_key": "env:X"}}, "a setting of its own, `key`"),
        ({"format": "pydantic-ai", "options": {"aws_session_token": "sk-1"}}, "write a reference"),
        ({**LOCAL, "headers": {"X-Api-Key": "sk-1"}}, "write a reference"),
        ({**LOCAL, "headers": {"X-Api-Key": "env:"}}, "never the key itself"),
        ({**LOCAL, "total_s": "10"}, "a number of seconds"),
        ({**LOCAL, "total_s": 0}, "a number of seconds"),
        ({**LOCAL, "total_s": float("nan")}, "a number of seconds"),
        ({**LOCAL, "reasoning": "yes"}, "write true or false"),
        ({**LOCAL, "ceiling": "tokens"}, "write one of"),
        ({**LOCAL, "url": "x"}, "known settings are base_url"),
    ],
)
def test_a_bad_provider_is_one_clear_sentence(table: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_providers({"local": table})
    message = str(caught.value)
    assert said in message
    assert "local" in message
    assert "hunter2" not in message
    assert "sk-" not in message


def test_a_provider_behind_the_library_needs_no_address() -> None:
    options = {"region_name": "eu-west-1", "aws_session_token": "env:TOKEN"}
    table = {"format": "pydantic-ai", "provider": "bedrock", "options": options, "total_s": 4}
    found = read_providers({"aws": table})["aws"]
    assert (found.provider, found.options, found.base_url, found.key) == ("bedrock", options, "", None)


def test_a_known_provider_is_not_asked_through_the_library() -> None:
    with pytest.raises(InvalidInput, match="choose another name"):
        read_providers({"openai": {"format": "pydantic-ai"}})


@pytest.mark.parametrize("name", ["Local", "my provider", "a:b", "", "1st"])
def test_a_provider_has_a_name_that_can_stand_before_a_model(name: str) -> None:
    with pytest.raises(InvalidInput, match="lower-case"):
        read_providers({name: LOCAL})


@pytest.mark.parametrize(
    ("model", "provider", "default", "full"),
    [
        ("gpt-5", "", None, "openai:gpt-5"),
        ("local:smol", "", None, "local:smol"),
        ("smol", "local", None, "local:smol"),
        ("local:smol", "local", None, "local:smol"),
        ("llama3:8b", "local", None, "local:llama3:8b"),
        ("local:llama3:8b", "", None, "local:llama3:8b"),
        ("", "", "local:smol", "local:smol"),
        ("", "", "gpt-5", "openai:gpt-5"),
        ("", "local", "local:smol", "local:smol"),
        ("gpt-5", "", "local:smol", "openai:gpt-5"),
    ],
)
def test_a_model_has_one_full_name(model: str, provider: str, default: str | None, full: str) -> None:
    assert full_name(model, provider=provider, default=default, known=KNOWN) == full


@pytest.mark.parametrize(
    ("model", "provider", "said"),
    [
        ("", "", "ONWARD_MODEL"),
        ("llama3:8b", "", "known providers are anthropic, google, local, openai"),
        ("small", "acme", "known providers are anthropic, google, local, openai"),
        ("", "local", "write local:MODEL"),
        ("local:", "", "write local:MODEL"),
    ],
)
def test_a_model_that_cannot_be_found_is_one_clear_sentence(model: str, provider: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        full_name(model, provider=provider, default=None, known=KNOWN)


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onward.toml").write_text(
        '[agents]\nmodel = "local:smol"\n[providers.local]\nbase_url = "http://127.0.0.1:8000/v1"\n'
        '[prices."local:smol"]\ninput = 0.1\noutput = 2\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONWARD_MODEL", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    models = open_models(load_settings(), NOTHING_SECRET)
    assert models.full_name() == "local:smol"
    assert models.providers["openai"].base_url == "http://127.0.0.1:1/v1"
    price = open_prices(load_settings()).find("local:smol")
    assert price is not None
    assert (price.input, price.output) == (100_000, 2_000_000)
    monkeypatch.setenv("ONWARD_MODEL", "gpt-5")
    assert open_models(load_settings(), NOTHING_SECRET).full_name() == "openai:gpt-5"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('agents = "gpt-5"', "write a table"),
        ('[agents]\nmodle = "gpt-5"', "known settings are allowed_tools, model"),
        ("[agents]\nmodel = 5", "write text in quotes"),
        ('providers = "openai"', "write a table"),
        ("prices = 3", "write a table"),
    ],
)
def test_a_bad_table_is_one_clear_sentence(
    written: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onward.toml").write_text(written)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONWARD_MODEL", raising=False)
    with pytest.raises(InvalidInput, match=said):
        load_settings()


def test_every_setting_of_the_tables_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = [f"`providers.NAME.{name}`" for name in READERS]
    told += [f"{name} = " for name in (*AGENT_SETTINGS, *Rates.__struct_fields__)]
    assert [name for name in told if name not in page] == []
