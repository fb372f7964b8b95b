"""The closed schemas of receipts and handoffs."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from onward.errors import InvalidInput
from onward.receipts.receipt import BYTES_MAX, read_handoff, read_receipt, written

DOCS = Path(__file__).parent.parent.parent / "docs" / "schemas"
RECEIPT: dict[str, Any] = {
    "schema_version": 1,
    "run_id": "run",
    "flow_key": "build",
    "step_id": "a#1",
    "node": "a",
    "branch": "",
    "visit": 1,
    "agent_key": "tool",
    "engine": "tool",
    "mode": "cli",
    "provider": None,
    "model": None,
    "status": "succeeded",
    "started_at": "2026-01-02T03:04:05.000006Z",
    "completed_at": "2026-01-02T03:04:06.000006Z",
    "duration_ms": 1000,
    "sequence": 5,
    "previous": "start#1",
    "attempts": [],
    "error": None,
    "tokens": {"prompt": 1, "completion": 2, "total": 3},
    "transcript_path": None,
    "handoff_envelope_path": None,
    "routing": None,
    "artifacts": [],
    "log": [],
    "workspace_root": None,
    "recorded_in": "run",
}


def content(**changes: Any) -> bytes:
    return json.dumps({**RECEIPT, **changes}).encode()


def test_a_receipt_is_read_as_it_was_written() -> None:
    receipt = read_receipt(content(), "r.json")
    assert json.loads(written(receipt)) == RECEIPT
    assert read_receipt(written(receipt), "r.json") == receipt


def test_every_field_is_required() -> None:
    for name in RECEIPT:
        less = {key: value for key, value in RECEIPT.items() if key != name}
        with pytest.raises(InvalidInput, match=f"r.json is not a valid receipt of version 1: .*`{name}`"):
            read_receipt(json.dumps(less).encode(), "r.json")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"more": 1}, "unknown field `more`"),
        ({"status": "fine"}, "Invalid enum value 'fine'"),
        ({"schema_version": 3}, "is a receipt of version 3; this version of Onward reads version 1 and 2"),
        ({"schema_version": "1"}, "Expected `int`"),
        ({"tokens": {"prompt": -1, "completion": 0, "total": 0}}, ">= 0"),
        ({"started_at": "yesterday"}, "matching regex"),
        ({"started_at": "2026-02-30T00:00:00.000000Z"}, "day"),
        ({"sequence": 0}, ">= 1"),
        ({"run_id": ""}, "length >= 1"),
    ],
)
def test_a_file_that_is_no_receipt_is_named_with_what_is_wrong(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_receipt(content(**changes), "r.json")
    assert "r.json" in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b" " * (BYTES_MAX + 1)])
def test_junk_is_refused_with_a_sentence(junk: bytes) -> None:
    for read in (read_receipt, read_handoff):
        with pytest.raises(InvalidInput, match=r"^r\.json is not a valid "):
            read(junk, "r.json")


@pytest.mark.parametrize(("name", "kind"), [("receipt.v1.json", "Receipt"), ("handoff.v1.json", "Handoff")])
def test_the_schemas_are_shipped_and_closed(name: str, kind: str) -> None:
    shipped = (resources.files("onward.receipts") / "schemas" / name).read_text(encoding="utf-8")
    assert shipped == (DOCS / name).read_text(encoding="utf-8")
    schema = json.loads(shipped)
    for made in schema["$defs"].values():
        assert made["additionalProperties"] is False
        assert sorted(made["required"]) == sorted(made["properties"])
    if kind == "Receipt":
        assert sorted(schema["$defs"][kind]["properties"]) == sorted(RECEIPT)
