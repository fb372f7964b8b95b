"""Keys are read when they are used, and an error names the place and never the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.agents.model import FailureKind
from onward.agents.models import Models
from onward.agents.providers import KeyMissing, Keys, read_providers
from onward.clock import SystemClock
from onward.process import SystemSpawn
from onward.testing.model_endpoint import serving_model
from tests.agents.asking import failure_of, pieces_of, raw_server, request, response

pytestmark = pytest.mark.anyio
PATH = {"PATH": "/usr/bin:/bin"}


def keys(directory: Path | None = None, **variables: str) -> Keys:
    return Keys(variables=lambda: PATH | variables, spawn=SystemSpawn(), directory=str(directory or "."))


async def test_a_key_is_found_where_its_reference_says(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\nand a comment\n")
    known = keys(tmp_path, ACME="from-a-variable")
    assert await known.value("env:ACME") == "from-a-variable"
    assert await known.value("file:key") == "from-a-file"
    assert await known.value(f"file:{tmp_path}/key") == "from-a-file"
    assert await known.value("command:cat key | tr a-z A-Z") == "FROM-A-FILE"
    assert await known.value("no reference") == "no reference"


async def test_a_key_is_read_anew_for_every_request() -> None:
    variables = {"ACME_KEY": "first"}
    provider = {"key": "env:ACME_KEY", "headers": {"X-Other": "env:OTHER"}}
    async with raw_server(lambda _: response(b"", status="500 No")) as (url, heads):
        models = Models(
            read_providers({"acme": {"base_url": url, **provider}}),
            keys=Keys(variables=lambda: variables, spawn=SystemSpawn()),
            clock=SystemClock(),
        )
        variables |= {"OTHER": "one"}
        await failure_of(models)
        variables |= {"ACME_KEY": "second", "OTHER": "two"}
        await failure_of(models)
        await models.close()
    assert b"Bearer first\r\n" in heads[0]
    assert b"X-Other: one\r\n" in heads[0]
    assert b"Bearer second\r\n" in heads[1]
    assert b"X-Other: two\r\n" in heads[1]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("env:NOBODY", "NOBODY, which should contain its API key, is not set"),
        ("env:EMPTY", "is empty"),
        ("env:ODD", "characters that a key cannot have"),
        ("file:none", "cannot be read"),
        ("file:.", "cannot be read"),
        ("file:binary", "is not a text file"),
        ("command:exit 3", "exit code 3"),
        ("command:true", "is empty"),
    ],
)
async def test_a_missing_key_is_told_without_what_was_found(
    reference: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(KeyMissing, match=said) as caught:
        await keys(tmp_path, EMPTY=" \n", ODD="top\x01secret").value(reference)
    assert "secret" not in str(caught.value)


async def test_without_its_key_openai_is_not_asked() -> None:
    models = Models(read_providers({}), keys=keys(), clock=SystemClock())
    failure = await failure_of(models, request(model="openai:gpt-5"))
    assert (failure.kind, failure.may_have_cost) == (FailureKind.AUTH, False)
    assert "OPENAI_API_KEY" in failure.message


async def test_a_server_of_ones_own_needs_no_key() -> None:
    async with serving_model() as endpoint:
        providers = read_providers(
            {"local": {"base_url": endpoint.base_url}}, base_urls={"openai": endpoint.base_url}
        )
        models = Models(providers, keys=keys(), clock=SystemClock())
        for name in ("openai:small", "local:small"):
            _, failure = await pieces_of(models, request(model=name))
            assert failure is None
        await models.close()
    assert [entry.has_key for entry in endpoint.ledger.entries] == [False, False]
