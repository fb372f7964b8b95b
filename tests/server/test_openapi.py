"""The description of the API is true: requests made from it never break the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from onward.operations.http import ROUTES
from onward.server.openapi import described, document_page
from tests.cli.shell import Shell, pipeline
from tests.server.serving import Serving, serving

EXAMPLES = 40


def test_every_route_is_described_and_every_reference_leads_somewhere() -> None:
    made = described()
    methods = [(path, method) for path, found in made["paths"].items() for method in found]
    assert sorted(methods) == sorted((route.path, route.method.lower()) for route in ROUTES)
    text = json.dumps(made)
    for name in {one.partition('"')[0] for one in text.split("#/components/schemas/")[1:]}:
        assert name in made["components"]["schemas"], name


def test_the_page_works_offline_and_without_a_script() -> None:
    page = document_page()
    assert "<script" not in page
    assert "http" not in page.replace("HTTP", "")
    assert page.count("<h2><code>") == len(ROUTES)


@pytest.fixture
def server(shell: Shell) -> Iterator[Serving]:
    shell.write("onward.toml", "[serve]\nrequests = 100000.0\nburst = 100000\ncreations = 100000.0\n")
    with serving(shell) as server:
        server.add("work", pipeline(("a", "true")))
        server.post("/api/runs", {"pipeline": "work", "run_id": "work"})
        yield server


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_request_breaks_the_server_and_every_reply_is_as_described(server: Serving, count: Any) -> None:
    """No 5xx, no hang, every reply in the schema; streams left out."""
    schema = schemathesis.openapi.from_dict(described())
    tried = 0
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]  # our schema is valid: it is tested above

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def attempt(case: Any) -> None:
            nonlocal tried
            tried += 1
            response = case.call(
                base_url=f"http://127.0.0.1:{server.port}",
                headers={"Authorization": f"Bearer {server.token}"},
                timeout=30,
            )
            case.validate_response(
                response,
                checks=[not_a_server_error, response_schema_conformance, content_type_conformance],
            )

        attempt()
    count(f"{tried} generated requests, no reply outside the schema")
