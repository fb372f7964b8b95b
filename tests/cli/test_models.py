"""`onward models`: what is set up, what is missing, and what models cost."""

from __future__ import annotations

import pytest

from onward.agents.model import TokenUsage
from onward.model.values import KNOWN_PROVIDERS
from onward.testing.script import ModelScript, ScriptedReply
from tests.cli.agents import TALK, with_model
from tests.cli.shell import Shell


def test_without_settings_every_provider_says_what_it_lacks(shell: Shell) -> None:
    shown = shell.inside("models")
    assert shown.code == 0
    for known in KNOWN_PROVIDERS.values():
        assert (
            f"no: the variable {known.key_variable}, which should contain its API key, is not set"
            in shown.out
        )
    assert "no default model: set ONWARD_MODEL" in shown.out
    assert "prices of providers that are not set up: onward models --all" in shown.out
    assert "google:gemini-2.5-pro" not in shown.out
    assert "google:gemini-2.5-pro" in shell.inside("models", "--all").out


def test_a_key_sets_a_provider_up_and_is_not_shown(shell: Shell) -> None:
    shell.environment |= {
        "ANTHROPIC_API_KEY": "canary-0123456789",
        "ONWARD_MODEL": "anthropic:claude-sonnet-5",
    }
    shown = shell.inside("models")
    assert "default model: anthropic:claude-sonnet-5\n" in shown.out
    assert "anthropic:claude-sonnet-5" in shown.out.partition("MODEL")[2]
    assert "openai:gpt-5" not in shown.out
    assert "canary" not in shown.out + shown.err
    [anthropic, google, _] = shell.inside("models", "--json").json["providers"]
    assert (anthropic["is_set_up"], anthropic["problem"]) == (True, None)
    assert (google["is_set_up"], google["format"]) == (False, "google")


def test_a_provider_and_a_price_of_a_file_are_shown(shell: Shell) -> None:
    shell.write(
        "onward.toml",
        '[providers.acme]\nbase_url = "http://127.0.0.1:9/v1"\n'
        'format = "anthropic"\nkey = "file:no-such-key"\n'
        '[providers.local]\nbase_url = "http://127.0.0.1:8000/v1"\n'
        '[prices."local:small"]\ninput = 0.25\noutput = 2\n',
    )
    shown = shell.inside("models")
    assert "no: the file no-such-key of its key does not exist" in shown.out
    found = shell.inside("models", "--json").json
    providers = {one["name"]: one for one in found["providers"]}
    assert (providers["acme"]["format"], providers["acme"]["is_set_up"]) == ("anthropic", False)
    assert providers["local"]["is_set_up"]
    [own] = [one for one in found["models"] if one["is_own"]]
    assert (own["model"], own["input_micro"], own["cached_input_micro"]) == ("local:small", 250_000, 250_000)
    assert own["as_of"] is None
    shell.write("no-such-key", "secret")
    assert "no-such-key" not in shell.inside("models").out


def test_a_default_that_cannot_be_asked_says_why(shell: Shell) -> None:
    shell.environment["ONWARD_MODEL"] = "acme:small"
    assert "default model: acme:small, which cannot be used: " in shell.inside("models").out
    shell.environment["ONWARD_MODEL"] = "google:gemini-2.5-flash"
    assert "which cannot be used: the variable GEMINI_API_KEY" in shell.inside("models").out


def test_a_bad_setting_is_one_clear_sentence(shell: Shell) -> None:
    shell.write("onward.toml", '[providers.acme]\nbase_url = "http://127.0.0.1:9"\nformat = "bedrock"\n')
    refused = shell.inside("models")
    assert refused.code == 2
    assert "write one of openai, anthropic, google" in refused.err


@pytest.mark.parametrize(
    ("model", "written", "cost"),
    [
        ("openai:gpt-4o-mini", 0, 0.00051),
        ("anthropic:claude-haiku-4-5", 300, 0.004075),
        ("google:gemini-2.5-flash", 0, 0.0018),
    ],
)
def test_a_pipeline_asks_every_known_provider_and_its_usage_is_recorded(
    shell: Shell, model: str, written: int, cost: float
) -> None:
    usage = TokenUsage(input=1_000, output=600, cached_input=0, cache_write=written, reasoning=100)
    with with_model(shell, ModelScript(default=ScriptedReply(text="Hello.", reasoning="hm", usage=usage))):
        shell.environment["ONWARD_MODEL"] = model
        shell.write("talk.dot", TALK)
        done = shell("run", "talk.dot", "--run-id", "talk")
        assert done.code == 0, done.err
    first, second = shell.inside("calls", "talk", "--json").json
    assert first["model"] == second["model"] == model
    told = {"input": 1_000, "output": 600, "cached": 0, "reasoning": 100, "cache_write": written}
    assert first["usage"] == told
    assert first["cost"] == pytest.approx(cost)


def test_programs_are_shown_with_where_they_are(shell: Shell) -> None:
    shell.write("agent.sh", "#!/bin/sh\n")
    (shell.directory / "agent.sh").chmod(0o755)
    shell.write(
        "onward.toml",
        '[programs.mine]\ncommand = ["./agent.sh", "-q"]\n[programs.gone]\ncommand = ["no-such-agent"]\n',
    )
    shell.environment["PATH"] = "/usr/bin:/bin"
    found = {one["name"]: one for one in shell.inside("models", "--json").json["programs"]}
    assert [*found] == ["claude-code", "codex", "gemini", "gone", "mine"]
    here = str(shell.directory / "agent.sh")
    assert (found["mine"]["is_own"], found["mine"]["found"], found["mine"]["problem"]) == (True, here, None)
    assert (found["codex"]["is_own"], found["codex"]["found"]) == (False, None)
    shown = shell.inside("models").out
    assert f"mine         lines        {here}\n" in shown
    assert "gone         lines        no: 'no-such-agent' was not found, or is not executable\n" in shown
    assert (
        "no: 'codex' was not found, or is not executable; install it: npm install -g @openai/codex" in shown
    )


def test_the_doctor_misses_a_program_that_settings_describe(shell: Shell) -> None:
    shell.inside("effect", "none")  # creates the database
    shell.write("onward.toml", '[programs.mine]\ncommand = ["sh"]\n')
    well = shell.inside("doctor")
    assert well.code == 0, well.out
    assert "ok   program       mine: /" in well.out
    assert "claude" not in well.out, "nobody asked for it"
    shell.write("onward.toml", '[programs.gone]\ncommand = ["no-such-agent"]\n')
    ill = shell.inside("doctor")
    assert ill.code == 1
    assert "BAD  program       gone: 'no-such-agent' was not found, or is not executable\n" in ill.out
