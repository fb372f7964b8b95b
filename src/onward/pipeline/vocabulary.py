"""The attributes that Onward reads, where each belongs, and what other implementations call them.

Also what a pipeline says about chats: which of its steps a resume needs, what messages do to its runs, and
how much of what was said before its agents see.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import SequenceMatcher

from onward.errors import ConditionError
from onward.pipeline.condition import Condition, parse_condition
from onward.pipeline.source import Value, as_boolean, as_count, as_text

_MODELS = frozenset({"llm_model", "llm_provider", "reasoning_effort", "agent_program"})
_AGENT = frozenset(
    {
        "max_tokens",
        "temperature",
        "max_rounds",
        "max_output_tokens",
        "output_schema",
        "must_use_tools",
        "on_partial",
        "chat_history",
    }
)
_TOOLS = frozenset({"allowed_tools"})
_TARGETS = frozenset({"retry_target", "fallback_retry_target"})
_HOOKS = frozenset({"tool_hooks.pre", "tool_hooks.post", "tool_hooks.timeout"})
_CHILD = frozenset({"stack.child_dotfile", "stack.child_workdir"})

GRAPH_ATTRIBUTES = frozenset(
    {
        *("goal", "label", "model_stylesheet", "default_max_retries", "default_max_retry"),
        *("default_fidelity", "default_thread_id", "max_visits", "max_steps", "max_reroutes"),
        *("max_restarts", "max_running", "files", "workspace", "workspace_mode", "retry_policy"),
        *(
            "retry_on_fail",
            "continue_on_fail",
            "on_message",
            "while_running",
            "intents",
            "scopes",
            "inputs",
            *_MODELS,
            *_TOOLS,
            *_TARGETS,
            *_HOOKS,
            *_CHILD,
        ),
    }
)
NODE_ATTRIBUTES = frozenset(
    {
        *("label", "prompt", "shape", "type", "class", "max_retries", "max_visits", "retry_policy"),
        *(
            "allow_partial",
            "goal_gate",
            "timeout",
            "fidelity",
            "thread_id",
            "auto_status",
            "repeatable",
            "required_for_resume",
        ),
        *("continue_on_fail", "tool_command", "join_policy", "max_parallel", "files", "workspace"),
        *("human.type", "human.question", "human.show", "human.default_choice", "human.timeout"),
        *("human.on_timeout", "human.remind", "human.options"),
        *("manager.poll_interval", "manager.max_cycles", "manager.stop_condition", "manager.actions"),
        *("manager.steer_cooldown", "stack.child_autostart", *_MODELS, *_AGENT, *_TOOLS),
        *(*_TARGETS, *_HOOKS, *_CHILD),
    }
)
EDGE_ATTRIBUTES = frozenset(
    {"label", "condition", "weight", "fidelity", "thread_id", "loop_restart", "loop_restart_keep", "data"}
)
GUARDS = frozenset(
    {
        *("shape", "type", "goal_gate", "repeatable", "condition", "tool_hooks.pre", *_TOOLS),
        *("human.type", "human.default_choice", "human.timeout", "human.on_timeout"),
    }
)
"""Without these a run does what its author forbade: a gate does not ask, an edge needs no condition."""

FOREIGN_GRAPH: Mapping[str, str] = {
    "model": "llm_model",
    "provider": "llm_provider",
    "backoff_policy": "retry_policy",
    "max_node_visits": "max_visits",
    "max_goal_gate_redirects": "max_reroutes",
    "tools": "allowed_tools",
    "context_fidelity_default": "default_fidelity",
    "context_thread_default": "default_thread_id",
    "default_node_timeout": "node [timeout=...]",
    "loop_restart_persist_keys": "loop_restart_keep on the edge that restarts",
}
FOREIGN_NODE: Mapping[str, Mapping[str, str]] = {
    "codergen": {"llm_prompt": "prompt", "reasoning": "reasoning_effort", "tools": "allowed_tools"},
    "tool": dict.fromkeys(("script", "command", "cmd"), "tool_command"),
    "wait.human": {
        "question": "human.question",
        "mode": "human.type",
        "default_choice": "human.default_choice",
    },
    "stack.manager_loop": {
        **dict.fromkeys(("dot_file", "sub_pipeline", "graph_ref"), "stack.child_dotfile"),
        "max_cycles": "manager.max_cycles",
        "stop_condition": "manager.stop_condition",
    },
    "": {
        "model": "llm_model",
        "provider": "llm_provider",
        **dict.fromkeys(("retries", "max_retry"), "max_retries"),
        "backoff_policy": "retry_policy",
    },
}
"""What others call an attribute of ours, for each kind of node, and for all of them."""
FOREIGN_TYPE = ("handler", "node_type")
"""What others call `type`."""

SHORT, LONG, ALIKE = 4, 7, 0.84
_GRAPHVIZ = frozenset({"xlabel"})
"""The attributes for drawing that look like ours with a typo."""


def meant(key: str, names: Collection[str]) -> str:
    """The name that a key nearly is, or nothing: another case, other separators, or one typo."""
    if key in _GRAPHVIZ:
        return ""
    found = _plain(key)
    near = (name for name in sorted(names) if is_near(found, _plain(name)))
    # `Diamond` means diamond, though Mdiamond is only one letter away.
    return min(near, key=lambda name: _plain(name) != found, default="")


def is_near(found: str, name: str) -> bool:
    """Whether a word is a name with a typo, or with two if it is long; the shorter it is, the fewer count."""
    if found == name:
        return True
    if abs(len(found) - len(name)) > 1 or not found:
        return False
    if len(name) >= LONG and SequenceMatcher(None, found, name).ratio() >= ALIKE:
        return True
    begin = _common(found, name)
    end = _common(found[begin:][::-1], name[begin:][::-1])
    extra, missing = found[begin : len(found) - end], name[begin : len(name) - end]
    if not extra:  # a letter is missing
        return len(missing) == 1
    if not missing:  # a letter too many
        return len(extra) == 1 and len(name) > SHORT
    if len(extra) == len(missing) == 2:
        return extra == missing[::-1]
    return len(extra) == len(missing) == 1 and len(name) >= LONG


def _common(one: str, other: str) -> int:
    """How many characters two words begin with together."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace(".", "")


REQUIRED = "required_for_resume"
ON_MESSAGE, ON_MESSAGE_RULES = "on_message", ("auto", "ask", "never")
WHILE_RUNNING, WHILE_RUNNING_RULES = "while_running", ("queue", "steer")
CHAT_HISTORY, HISTORY_DEFAULT, HISTORY_MAX = "chat_history", 20, 200
_NEVER_KNOWN = ("outcome", "preferred_label")


def as_requirement(value: Value) -> bool | Condition:
    """Whether a step must have finished before its run is resumed: always, never, or where a condition holds.

    A word by itself is no condition here: it would hold for a value that nothing sets.
    """
    if isinstance(value, bool) or as_text(value).strip() in ("true", "false"):
        return as_boolean(value)
    expected = "true, false, or a condition on inputs such as intent=build"
    try:
        found = parse_condition(as_text(value))
    except ConditionError as error:
        raise ValueError(f"{expected}: {error.message}") from None
    if not found.clauses or any(not one.operator or one.key in _NEVER_KNOWN for one in found.clauses):
        raise ValueError(expected)
    return found


def as_history(value: Value) -> int:
    """How many messages of its chat an agent sees that were said before its run: none, some, or as many as is
    usual."""
    if isinstance(value, bool) or as_text(value).strip() in ("true", "false"):
        return HISTORY_DEFAULT if as_boolean(value) else 0
    expected = f"true, false, or how many messages, from 0 to {HISTORY_MAX}"
    try:
        count = as_count(value)
    except ValueError:
        raise ValueError(expected) from None
    if count > HISTORY_MAX:
        raise ValueError(expected)
    return count
