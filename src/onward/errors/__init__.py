"""Every exception Onward raises, and whose fault it is. Import them from here.

- OnwardError
    - InvalidPipeline         the definition: all diagnostics of a file at once
    - ConditionError          the definition: a condition that does not parse (carries an offset)
    - StylesheetError         the definition: a model stylesheet that does not parse (carries an offset)
    - InvalidInput            the caller: a value, flag or setting that cannot be used
        - UnstorableValue     a context value that would not come back exactly as it went in
        - InvalidScript       an entry of a simulation script that cannot be played
        - NoProvider          an agent step needs a model, and no provider is set up
        - RefusedInList       one of many runs that were asked for together
        - PipelineNotFound    no pipeline, or no version of it, is registered under this name
    - Refused                 the run: a request that its state does not allow (has a code)
    - StillGoing              the caller: a run did not stop in the time that was given
    - RunNotFound             the caller: no run has this id
    - AmbiguousRun            the caller: several runs have this id or prefix
    - ArtifactNotFound        the caller: the run has no artifact of this id
    - StepNotFound            the caller: the run has started no step of this name
    - NotificationNotFound    the caller: there is no notification of this id
    - ChatNotFound            the caller: there is no run and no chat of this name
    - UnknownHandler          the definition or the app: no handler serves this node type
    - SpawnFailed             the machine: a command could not be started, and did not run
        - CannotExecute       the caller: there is no such program, or it may not be run
    - EffectFailed            the effect: it ran once, failed, and does not run again
    - CallFailed              the call: the service that it asked failed
    - CallTimedOut            the call: it took longer than its time limit
    - LimitReached            the call: a limit does not allow it, now or at all
    - WorkdirGone             the machine: the directory that a run works in is not there
    - WorkspaceFailed         the workspace: git could not do what a run needs
      - GitKilled             the same, because a signal ended it: another try may succeed
    - LeaseLost               the holder: another process holds the run now
    - StaleHistory            the holder: the log grew since it was read
    - HistoryCorrupt          the store: an event does not decode, fold or chain
    - StoreError              the store
        - StoreUnavailable    cannot be reached or opened, or stayed locked
            - NoDatabase      there is none yet, and the request creates none
        - StoreFull           no space left
        - StoreReadOnly       cannot be written
        - StoreIO             the disk or connection failed halfway
        - StoreCorrupt        not a database, or a damaged one
            - RunUnreadable   a worker: the next due run cannot be read
        - StoreGone           a file of it was deleted or replaced while it was in use
        - SchemaTooNew        written by a newer Onward
        - SchemaInUse         must be migrated, and a process of an older Onward holds runs in it
"""

from __future__ import annotations

from onward.errors.definition import ConditionError, InvalidPipeline, StylesheetError, UnknownHandler
from onward.errors.input import (
    InvalidInput,
    InvalidScript,
    NoProvider,
    PipelineNotFound,
    RefusedInList,
    UnstorableValue,
)
from onward.errors.request import (
    AmbiguousRun,
    ArtifactNotFound,
    ChatNotFound,
    NotificationNotFound,
    Refused,
    RunNotFound,
    StepNotFound,
    StillGoing,
)
from onward.errors.root import OnwardError
from onward.errors.step import (
    CallFailed,
    CallTimedOut,
    CannotExecute,
    EffectFailed,
    GitKilled,
    LimitReached,
    SpawnFailed,
    WorkdirGone,
    WorkspaceFailed,
)
from onward.errors.store import (
    HistoryCorrupt,
    LeaseLost,
    NoDatabase,
    RunUnreadable,
    SchemaInUse,
    SchemaTooNew,
    StaleHistory,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreGone,
    StoreIO,
    StoreReadOnly,
    StoreUnavailable,
)

__all__ = [
    "AmbiguousRun",
    "ArtifactNotFound",
    "CallFailed",
    "CallTimedOut",
    "CannotExecute",
    "ChatNotFound",
    "ConditionError",
    "EffectFailed",
    "GitKilled",
    "HistoryCorrupt",
    "InvalidInput",
    "InvalidPipeline",
    "InvalidScript",
    "LeaseLost",
    "LimitReached",
    "NoDatabase",
    "NoProvider",
    "NotificationNotFound",
    "OnwardError",
    "PipelineNotFound",
    "Refused",
    "RefusedInList",
    "RunNotFound",
    "RunUnreadable",
    "SchemaInUse",
    "SchemaTooNew",
    "SpawnFailed",
    "StaleHistory",
    "StepNotFound",
    "StillGoing",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreGone",
    "StoreIO",
    "StoreReadOnly",
    "StoreUnavailable",
    "StylesheetError",
    "UnknownHandler",
    "UnstorableValue",
    "WorkdirGone",
    "WorkspaceFailed",
]

for _name in __all__:  # tracebacks name the module that users import from
    globals()[_name].__module__ = __name__
