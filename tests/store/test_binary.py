"""Arrays as a real server reads them: every value comes back, in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from psycopg.pq import ExecStatus

from onward.errors import InvalidInput
from onward.store.postgres.statements import LAST, PACKED_MAX, byteas, load, numbers, texts
from onward.testing.postgres import PostgresServer
from tests.chance import examples

TEXTS, NUMBERS, BYTEAS = 1009, 1016, 1001  # what the server calls arrays of these
characters = st.one_of(st.sampled_from(["\0", LAST, LAST + "0", "ä", "😀"]), st.text(max_size=3))
written = st.lists(st.none() | st.lists(characters, max_size=4).map("".join), max_size=20)
counted = st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20)
many = list(range(PACKED_MAX + 1))

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def connection(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connected:
        yield connected


def read(connection: psycopg.Connection[Any], kind: int, array: bytes) -> list[Any]:
    """The elements of an array, as the server has them."""
    query = b"SELECT one FROM unnest($1) WITH ORDINALITY AS found (one, at) ORDER BY at"
    result = connection.pgconn.exec_params(query, [array], [kind], [1], 1)
    assert result.status == ExecStatus.TUPLES_OK, result.error_message
    return [value for (value,) in load(result)]


@given(values=written)
@example(values=["a" * 10_000, None, ""])
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_array_of_texts(connection: psycopg.Connection[Any], values: Sequence[str | None]) -> None:
    assert read(connection, TEXTS, texts(values)) == values


@given(values=counted)
@example(values=many)
@example(values=many[:-1])
@example(values=[*many, None])
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_array_of_numbers(connection: psycopg.Connection[Any], values: Sequence[int | None]) -> None:
    assert read(connection, NUMBERS, numbers(values)) == values


@given(values=st.lists(st.none() | st.binary(max_size=9), max_size=20))
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_array_of_bytes(connection: psycopg.Connection[Any], values: Sequence[bytes | None]) -> None:
    assert read(connection, BYTEAS, byteas(values)) == values


def test_half_of_a_character_is_refused_in_words() -> None:
    with pytest.raises(InvalidInput, match="a lone surrogate"):
        texts(["fine", "\ud800"])
