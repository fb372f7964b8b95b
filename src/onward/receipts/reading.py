"""Receipts as they are found on disk: which can be trusted, and what is wrong with the others.

A file proves nothing by being there: it may be of another run, of another program, of an attempt that was
never committed. Without the log, what fits together is trusted; with it, only what the log stands for.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onward.errors import InvalidInput
from onward.model.ids import called
from onward.receipts.folder import Folder
from onward.receipts.names import MANIFEST, Path
from onward.receipts.places import HANDOFFS, RECEIPTS, is_finished_file, step_file
from onward.receipts.receipt import BYTES_MAX, Receipt, hash_of, read_handoff, read_receipt


class Committed(msgspec.Struct, frozen=True):
    """A receipt that the log stands for: the hash of its file, and the number of its event."""

    step: str
    hash: str
    sequence: int


class Finding(msgspec.Struct, frozen=True):
    """A file that is not trusted, or is not there.

    `kind` is one of wrong_schema, foreign, misnamed, duplicate, partial, stale, altered, missing, unreadable.
    """

    kind: str
    file: str
    says: str


class Found(msgspec.Struct):
    """What a directory of receipts holds: the trusted ones by file name, and what is wrong."""

    trusted: dict[str, Receipt] = msgspec.field(default_factory=dict)
    findings: list[Finding] = msgspec.field(default_factory=list)


def read_receipts(
    folder: Folder, at: Path, flow: str, committed: Mapping[str, Committed] | None = None
) -> Found:
    """The receipts of the flow directory `flow` in the run's directory `at`.

    `committed` are those that the log stands for, by file name; then nothing else is trusted.
    """
    found = Found()
    run_id, read = _run_id(folder, at), dict[str, tuple[Receipt, str]]()
    for name in filter(is_finished_file, _names(folder, (*at, flow, RECEIPTS), found)):
        try:
            content = folder.read((*at, flow, RECEIPTS), name, limit=BYTES_MAX) or b""
            read[name] = read_receipt(content, name), hash_of(content)
        except InvalidInput as error:
            found.findings.append(Finding("wrong_schema", name, str(error)))
        except OSError as error:
            found.findings.append(Finding("unreadable", name, f"{name}: {error.strerror or error}."))
    for name, (receipt, hash) in read.items():
        finding = _misfit(name, receipt, run_id, read) if committed is None else None
        if committed is not None:
            finding = _disagreement(name, receipt, hash, committed, run_id)
        if finding is None and receipt.is_finished:
            finding = _unfinished(folder, (*at, flow, HANDOFFS), name, receipt, hash)
        if finding is None:
            found.trusted[name] = receipt
        else:
            found.findings.append(finding)
    for name, expected in (committed or {}).items():
        if name not in read and all(finding.file != name for finding in found.findings):
            says = f"{name} is missing: the log has {expected.step} at event {expected.sequence}."
            found.findings.append(Finding("missing", name, says))
    return found


def _names(folder: Folder, parts: Path, found: Found) -> list[str]:
    try:
        return folder.names(parts)
    except OSError as error:
        path = folder.path(*parts)
        found.findings.append(Finding("unreadable", path, f"{path}: {error.strerror or error}."))
        return []


def _run_id(folder: Folder, at: Path) -> str:
    """Whose receipts belong here: the manifest says it, else the directory's own name."""
    try:
        manifest = msgspec.json.decode(folder.read(at, MANIFEST, limit=BYTES_MAX) or b"null")
        run_id = manifest["run_id"]
    except (OSError, msgspec.DecodeError, TypeError, KeyError):
        run_id = None
    return run_id if isinstance(run_id, str) else folder.path(*at).rstrip("/").rpartition("/")[2]


def _foreign(name: str, receipt: Receipt, run_id: str) -> Finding | None:
    if receipt.run_id == run_id:
        return None
    theirs, ours = called(receipt.run_id), called(run_id)
    return Finding(
        "foreign", name, f"{name} is of run {theirs} ({receipt.run_id}), not of {ours} ({run_id})."
    )


def _misfit(
    name: str, receipt: Receipt, run_id: str, read: Mapping[str, tuple[Receipt, str]]
) -> Finding | None:
    """What is wrong with a receipt as far as files alone can tell."""
    foreign = _foreign(name, receipt, run_id)
    if foreign is not None:
        return foreign
    if name != step_file(receipt.step_id, receipt.agent_key):
        return Finding("misnamed", name, f"{name} says that it is of step {receipt.step_id}.")
    others = [
        other for other, (rival, _) in read.items() if rival.step_id == receipt.step_id and other != name
    ]
    if others:
        says = f"{name} and {', '.join(others)} are both of step {receipt.step_id}; only the log can tell."
        return Finding("duplicate", name, says)
    return None


def _disagreement(
    name: str, receipt: Receipt, hash: str, committed: Mapping[str, Committed], run_id: str
) -> Finding | None:
    """What is wrong with a receipt by the log."""
    expected = committed.get(name)
    if expected is not None and expected.hash == hash:
        return None
    foreign = _foreign(name, receipt, run_id)
    if foreign is not None:
        return foreign
    if expected is None:
        rival = next((other for other, one in committed.items() if one.step == receipt.step_id), None)
        if rival is not None:
            return Finding("duplicate", name, f"{name} is of {receipt.step_id}, whose receipt is {rival}.")
        return Finding("partial", name, f"{name} is of {receipt.step_id}, which the log has not ended.")
    if receipt.sequence < expected.sequence:
        says = f"{name} is of event {receipt.sequence}; the step ended again at event {expected.sequence}."
        return Finding("stale", name, says)
    if receipt.sequence > expected.sequence:
        return Finding("partial", name, f"{name} tells of event {receipt.sequence}, which was never written.")
    return Finding("altered", name, f"{name} is not what event {receipt.sequence} of the log says.")


def _unfinished(folder: Folder, parts: Path, name: str, receipt: Receipt, hash: str) -> Finding | None:
    """A finished step has a handoff that names this very receipt."""
    try:
        content = folder.read(parts, name, limit=BYTES_MAX)
        if content is None:
            return Finding("partial", name, f"{name} tells of a finished step, and its handoff is missing.")
        if read_handoff(content, f"{HANDOFFS}/{name}").receipt_hash == hash:
            return None
    except InvalidInput as error:
        return Finding("wrong_schema", name, str(error))
    except OSError as error:
        return Finding("unreadable", name, f"{HANDOFFS}/{name}: {error.strerror or error}.")
    return Finding("partial", name, f"the handoff of {receipt.step_id} is of another receipt than {name}.")
