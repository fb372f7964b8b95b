"""The rows of the source documents: what was shown once stays shown, and tests name only rows that exist."""

from __future__ import annotations

import re

from scripts.rows import Rows, faults, named_in, named_in_tests, read_rows
from tests.shape.tree import ROOT

ROWS: Rows = {"S1-1": {"says": "It works."}, "S1-2": {"says": "It flies.", "not_yet": True}}
OF_DOCUMENT_003 = """
resume_from_checkpoint context_restored_on_resume completed_nodes_skipped retry_counters_preserved
resume_branching goal_gates_after_resume graceful_pause
session_created session_completed session_paused session_failed
fork_from_checkpoint fork_diverges cli_status cli_resume cli_resume_invalid cli_replay
"""

FILE_OF_DOCUMENT_004 = "test_workflow_recovery.py"
UNITS_OF_DOCUMENT_004 = """
recover_in_progress_marks_failed recover_blocked_restores_approval recover_pending_unchanged
recover_no_active_workflows resume_validates_failed_status resume_validates_checkpoint_exists
resume_validates_worktree_available resume_transitions_to_in_progress resume_emits_started_event
valid_transitions_includes_failed_to_in_progress
"""


def test_every_row_that_was_shown_still_is_and_every_name_is_a_row() -> None:
    assert faults(read_rows(), named_in_tests()) == []


def test_a_row_is_named_by_the_docstring_of_a_test_and_by_nothing_else() -> None:
    source = '''
"""S1-1 in the docstring of a file."""
def test_one():
    """S1-2, B4-10: both, and S1-2 once."""
    # S1-3
async def test_two():
    "K4, S3-9, O0-11."
def helper():
    """S1-4"""
'''
    assert list(named_in(source)) == [
        ("test_one", "S1-2"),
        ("test_one", "B4-10"),
        ("test_two", "K4"),
        ("test_two", "S3-9"),
    ]


def test_a_row_that_is_lost_unknown_or_still_noted_as_missing_is_a_fault() -> None:
    assert faults(ROWS, {"S1-1": ["t"]}) == []
    (lost,) = faults(ROWS, {})
    assert lost.startswith("S1-1 was shown and no test names it any more: It works.")
    (unknown,) = faults(ROWS, {"S1-1": ["t"], "S9-9": ["t"]})
    assert unknown == "t names S9-9, which is not in tests/rows.toml; correct the id."
    (noted,) = faults(ROWS, {"S1-1": ["t"], "S1-2": ["t"]})
    assert noted == "S1-2 is named by t; take its `not_yet` out of tests/rows.toml."


def test_the_tests_that_document_003_lists_exist_under_their_names() -> None:
    """S3-13."""
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").glob("test_*.py"))]
    found = {name for source in sources for name in re.findall(r"def test_(\w+)\(", source)}
    assert set(OF_DOCUMENT_003.split()) <= found


def test_the_tests_that_document_004_lists_exist_under_their_names() -> None:
    """S4-30, S4-31."""
    unit, integration = (
        set(re.findall(r"def test_(\w+)\(", (ROOT / "tests" / kind / FILE_OF_DOCUMENT_004).read_text()))
        for kind in ("unit", "integration")
    )
    assert set(UNITS_OF_DOCUMENT_004.split()) <= unit
    assert {"recovery_on_startup", "resume_endpoint"} <= integration
