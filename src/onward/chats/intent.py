"""What a message wants and which part of the work it is about: read by rules, or by a model.

What can be wanted is what the registered pipelines are for (`onward.pipeline.purpose`): Onward itself knows
no intents. The rules look at the words of the message alone and are pure. A model reads it in a small run of
one agent step, which is as durable and limited as any other. Where there is nothing to choose, nothing is
read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from onward.errors import Refused
from onward.model.chat import BY_RULES, MessageReading
from onward.model.run import Run, RunStatus
from onward.pipeline.purpose import MessageKind, Purpose

ANSWER = "answer"
ANSWER_SOURCE = f"""digraph {ANSWER} {{
  graph [goal="answer a message of a chat", default_fidelity=full]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  {ANSWER} [prompt="$user_message", allowed_tools="", chat_history=true]
  start -> {ANSWER} -> exit
}}
"""
"""The pipeline of a chat's messages where none is registered."""
BUILT_IN = 0
"""The version of a pipeline that is not registered: it is part of Onward."""
LISTED_MAX = 10


class Candidate(msgspec.Struct, frozen=True):
    """A pipeline that a message may start, with its version and the messages that it is for."""

    pipeline: str
    version: int
    purpose: Purpose = Purpose()


class Offered(msgspec.Struct, frozen=True):
    """The pipelines that a message may start, in the order of their names. `by_intent` are those that the
    settings name for intents; they win."""

    candidates: tuple[Candidate, ...]
    by_intent: Mapping[str, Candidate] = msgspec.field(default_factory=dict)

    @property
    def is_read(self) -> bool:
        """Whether there is anything to read in a message. If the only pipeline says nothing, there is not."""
        (first, *others) = self.candidates
        return bool(others or first.purpose.intents or first.purpose.scopes)

    @property
    def intents(self) -> tuple[MessageKind, ...]:
        """What a message can want. Of several pipelines, one that says nothing is for what the settings name
        for it, or else for its own name."""
        if not self.is_read:
            return ()
        found = [kind for one in self.candidates for kind in self._wanted_of(one)]
        names = {kind.name for kind in found}
        return (*found, *(MessageKind(name) for name in self.by_intent if name not in names))

    def _wanted_of(self, candidate: Candidate) -> tuple[MessageKind, ...]:
        is_named = any(one.pipeline == candidate.pipeline for one in self.by_intent.values())
        if candidate.purpose.intents or is_named or len(self.candidates) == 1:
            return candidate.purpose.intents
        return (MessageKind(candidate.pipeline),)

    @property
    def scopes(self) -> tuple[MessageKind, ...]:
        """Which parts a message can be about, whichever pipeline it starts."""
        every = [*self.candidates, *self.by_intent.values()]
        return _once(kind for one in every for kind in one.purpose.scopes)

    @property
    def has_choice(self) -> bool:
        """Whether a model could read a message in more than one way."""
        return len(_once(self.intents)) > 1 or len(self.scopes) > 1

    def of(self, intent: str | None) -> Candidate:
        """The pipeline for an intent: that of the settings, or that has its name, or the only one for it."""
        if intent is not None and intent in self.by_intent:
            return self.by_intent[intent]
        if len(self.candidates) == 1:
            return self.candidates[0]
        fitting = [one for one in self.candidates if intent in {kind.name for kind in self._wanted_of(one)}]
        fitting = [one for one in fitting if one.pipeline == intent] or fitting
        if len(fitting) == 1:
            return fitting[0]
        raise _none_fits(intent, [one.pipeline for one in fitting or self.candidates], is_any=bool(fitting))

    @property
    def fallback(self) -> str | None:
        """The intent of a message whose words say nothing: the first of the only pipeline that has some."""
        declaring = [one for one in self.candidates if one.purpose.intents]
        return declaring[0].purpose.intents[0].name if len(declaring) == 1 else None


def _once(kinds: Iterable[MessageKind]) -> tuple[MessageKind, ...]:
    """The first kind of each name, in their order."""
    found: dict[str, MessageKind] = {}
    for kind in kinds:
        found.setdefault(kind.name, kind)
    return tuple(found.values())


def _none_fits(intent: str | None, names: Sequence[str], *, is_any: bool) -> Refused:
    several = ", ".join(names[:LISTED_MAX]) + (", …" if len(names) > LISTED_MAX else "")
    details = {"intent": intent, "pipelines": list(names)}
    if intent is None:
        return Refused(
            "no_pipeline",
            f"the words of this message do not select one of the registered pipelines ({several}); name one "
            "with --pipeline, give them intents (docs/chats.md), or let a model read messages: "
            "`classifier` under [chats] in onward.toml.",
            details=details,
        )
    which = "several of the registered pipelines" if is_any else "none of the registered pipelines"
    return Refused(
        "no_pipeline",
        f"this message was read as {intent}, and {which} ({several}) {'are' if is_any else 'is'} for that; "
        f"name one with --pipeline, or set `{intent}` under [chats.pipelines] in onward.toml.",
        details=details,
    )


def read_by_rules(text: str, offered: Offered, *, has_files: bool) -> MessageReading:
    """What a message is taken for, by its words. Refused: they do not say which pipeline it is for.

    Of intents the first that fits counts, and where none does, the first of all.
    """
    fitting = (kind.name for kind in offered.intents if kind.fits(text, has_files=has_files))
    intent = next(fitting, offered.fallback)
    reading = MessageReading(intent=intent, by=BY_RULES if offered.is_read else "", has_files=has_files)
    return _placed(reading, offered, text)


def _placed(reading: MessageReading, offered: Offered, text: str) -> MessageReading:
    """The reading with the pipeline of its intent, and a scope that this pipeline knows."""
    chosen = offered.of(reading.intent)
    known = {kind.name for kind in chosen.purpose.scopes}
    scope = reading.scope if reading.scope in known else _scope(text, chosen.purpose.scopes)
    return replace(reading, scope=scope, pipeline=chosen.pipeline, version=chosen.version)


def _scope(text: str, scopes: Sequence[MessageKind]) -> str | None:
    """The only one that fits. If several do, or none, it is the first: that is the whole."""
    fitting = [kind.name for kind in scopes if kind.fits(text, has_files=False)]
    if len(fitting) == 1:
        return fitting[0]
    return scopes[0].name if scopes else None


def read_as_before(offered: Offered, intent: str | None, scope: str | None) -> MessageReading:
    """A message as the run was read that it starts anew, whatever its pipeline is for by now."""
    chosen = offered.of(intent)
    return MessageReading(
        intent=intent, scope=scope, by=BY_RULES, pipeline=chosen.pipeline, version=chosen.version
    )


NODE = "read"
READING_S = 60
"""A person waits for what a model makes of a message; rules need no time."""
PROMPT = """A user sent this message in a chat:

${context.user_message}

There are files of the user's project already: ${context.has_files}

"""


def reading_source(classifier: str, offered: Offered) -> str:
    """The pipeline in which a model, `provider:model`, reads a message."""
    provider, _, model = classifier.rpartition(":")
    asked = {"intent": _once(offered.intents), "scope": offered.scopes}
    told = {
        "intent": "Say what the message wants (intent):",
        "scope": "Say which part of the work it is about (scope):",
    }
    paragraphs = [f"{told[field]}\n{_lines(kinds)}" for field, kinds in asked.items() if kinds]
    attributes = {
        "prompt": _unexpanded(PROMPT, "\n\n".join(paragraphs)),
        "output_schema": json.dumps(_schema(asked)),
        "timeout": f"{READING_S}s",
        "llm_model": model,
        **({"llm_provider": provider} if provider else {}),
    }
    written = ", ".join(f"{name}={_quoted(value)}" for name, value in attributes.items())
    return (
        'digraph onward_reading {\n  graph [goal="read a message"]\n'
        f"  start [shape=Mdiamond]\n  exit [shape=Msquare]\n  {NODE} [{written}]\n"
        f"  start -> {NODE} -> exit\n}}\n"
    )


def _unexpanded(prompt: str, described: str) -> str:
    """The prompt with descriptions in which no `$` names a value."""
    return prompt + described.replace("$", "")


def _lines(kinds: Sequence[MessageKind]) -> str:
    return "\n".join(f"- {kind.name}: {kind.about}" if kind.about else f"- {kind.name}" for kind in kinds)


def _schema(asked: Mapping[str, Sequence[MessageKind]]) -> dict[str, object]:
    properties = {field: {"enum": [kind.name for kind in kinds]} for field, kinds in asked.items() if kinds}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def read_by_model(
    run: Run, classifier: str, text: str, offered: Offered, *, has_files: bool
) -> MessageReading:
    """What a model made of a message; what rules make of it, if the model's run did not get there."""
    known = {kind.name for kind in offered.intents}
    intent, scope = (run.context.get(f"{NODE}.{field}") for field in ("intent", "scope"))
    is_there = intent in known if known else isinstance(scope, str)
    if run.status is not RunStatus.COMPLETED or not is_there:
        by_rules, why = read_by_rules(text, offered, has_files=has_files), run.reason or run.status.value
        return replace(by_rules, by=f"{BY_RULES}, because {classifier} did not respond ({why})")
    reading = MessageReading(intent=intent, scope=scope, by=classifier, has_files=has_files)
    return _placed(reading, offered, text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
