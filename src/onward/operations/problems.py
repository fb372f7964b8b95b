"""Errors as replies to requests: the HTTP status and the code of each class, for a server and its clients.

Every class of `errors` has a row of its own. A class that a request cannot meet, because it is about a call
or a holder inside a run, is a defect where it arrives here: 500.
"""

from __future__ import annotations

from collections.abc import Mapping

from onward import errors

BAD, FORBIDDEN, CONFLICT, MISSING, UNAVAILABLE, DEFECT = 422, 403, 409, 404, 503, 500
STATUSES: Mapping[type[errors.OnwardError], int] = {
    errors.OnwardError: DEFECT,
    errors.InvalidPipeline: BAD,
    errors.ConditionError: BAD,
    errors.StylesheetError: BAD,
    errors.UnknownHandler: CONFLICT,
    errors.InvalidInput: BAD,
    errors.UnstorableValue: BAD,
    errors.UnfitResult: BAD,
    errors.InvalidScript: BAD,
    errors.NoProvider: BAD,
    errors.RefusedInList: BAD,
    errors.PipelineNotFound: MISSING,
    errors.Refused: CONFLICT,
    errors.StillGoing: CONFLICT,
    errors.RunNotFound: MISSING,
    errors.AmbiguousRun: CONFLICT,
    errors.ArtifactNotFound: MISSING,
    errors.StepNotFound: MISSING,
    errors.NotificationNotFound: MISSING,
    errors.ChatNotFound: MISSING,
    errors.SpawnFailed: DEFECT,
    errors.CannotExecute: DEFECT,
    errors.EffectFailed: CONFLICT,
    errors.CallFailed: DEFECT,
    errors.AgentFailed: DEFECT,
    errors.CallStillRunning: DEFECT,
    errors.GraphFailed: DEFECT,
    errors.ResultLost: DEFECT,
    errors.CallTimedOut: DEFECT,
    errors.StepFailed: DEFECT,
    errors.FlowFailed: DEFECT,
    errors.FlowChanged: CONFLICT,
    errors.LimitReached: CONFLICT,
    errors.WorkdirGone: CONFLICT,
    errors.WorkspaceFailed: CONFLICT,
    errors.GitKilled: CONFLICT,
    errors.LeaseLost: CONFLICT,
    errors.StaleHistory: CONFLICT,
    errors.HistoryCorrupt: CONFLICT,
    errors.StoreError: UNAVAILABLE,
    errors.StoreUnavailable: UNAVAILABLE,
    errors.NoDatabase: UNAVAILABLE,
    errors.StoreGone: UNAVAILABLE,
    errors.StoreFull: UNAVAILABLE,
    errors.StoreReadOnly: UNAVAILABLE,
    errors.StoreIO: UNAVAILABLE,
    errors.StoreCorrupt: UNAVAILABLE,
    errors.RunUnreadable: UNAVAILABLE,
    errors.SchemaTooNew: UNAVAILABLE,
    errors.SchemaInUse: UNAVAILABLE,
}
OF_CODES: Mapping[str, int] = {
    "stale_head": 412,
    "key_reused": BAD,
    "wrong_role": 403,
    "not_over_http": FORBIDDEN,
    "effect_not_found": MISSING,
    "token_not_found": MISSING,
    "run_not_found": MISSING,
}
"""Refusals that are no conflict."""


def status_of(error: errors.OnwardError) -> int:
    """The HTTP status of an error; one of an application's own is as the nearest class above it."""
    own = OF_CODES.get(error.code)
    return own or next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def code_of(error: errors.OnwardError) -> str:
    """The code of an error in a reply: all values that cannot be used are `invalid_input`, and all that is
    wrong with a database is `store_unavailable`."""
    status = status_of(error)
    if isinstance(error, errors.InvalidInput) and status == BAD:
        return errors.InvalidInput.code
    return errors.StoreUnavailable.code if status == UNAVAILABLE else error.code
