"""Values that cannot be used as they are."""

from __future__ import annotations

from collections.abc import Sequence

from onward.errors.root import OnwardError


class InvalidInput(OnwardError):
    """A value, flag or setting that cannot be used as it is."""


class UnstorableValue(InvalidInput):
    """A context value that would not come back from the store exactly as it went in."""


class InvalidScript(InvalidInput):
    """An entry of a simulation script cannot be played; `place` is its node, and its number from 0."""

    def __init__(
        self, place: tuple[str | int, ...], reason: str, *, where: str = "the simulation script"
    ) -> None:
        self.place, self.reason = place, reason
        told = "".join(f"[{part}]" if isinstance(part, int) else part for part in place)
        end = "" if reason.endswith("?") else "."
        super().__init__(": ".join(filter(None, (where, told, reason))) + end)


class NoProvider(InvalidInput):
    """An agent step needs a model, and no provider of models is set up."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        super().__init__(
            f"node {node_id!r} is an agent step and no model provider is set up; set OPENAI_API_KEY, "
            "ANTHROPIC_API_KEY or GEMINI_API_KEY, and name the model with ONWARD_MODEL. For a server of your "
            "own set OPENAI_BASE_URL; other providers are [providers.NAME] in onward.toml (docs/agents.md). "
            "`onward models` shows what is set up. Without a model: --simulate plays the agents, and --app "
            "can name an app with a handler for 'codergen'."
        )


class RefusedInList(InvalidInput):
    """One of many runs cannot be created; `number` says which, from 0, and `error` why."""

    def __init__(self, number: int, error: OnwardError, *, is_any_created: bool = False) -> None:
        self.number, self.error, self.is_any_created = number, error, is_any_created
        super().__init__(self.told(f"number {number + 1} of the list"))

    def told(self, where: str) -> str:
        """The message, with the place of the run named as the caller knows it."""
        end = "the others were created" if self.is_any_created else "nothing was created"
        return f"{where}: {str(self.error).rstrip('.')}; {end}."


class PipelineNotFound(InvalidInput):
    """No pipeline is registered under this name, or it has no such version; `near` are names like it.

    `newest` is the last version that it has; `removed_by` took the name away. `is_no_file`: a file of this
    name would have been as good.
    """

    def __init__(
        self,
        wanted: str,
        *,
        near: Sequence[str] = (),
        newest: int | None = None,
        removed_by: str = "",
        is_no_file: bool = False,
    ) -> None:
        self.wanted, self.near, self.newest, self.removed_by = wanted, tuple(near), newest, removed_by
        name = wanted.partition("@")[0]
        nowhere = f"there is no file {wanted} here, and " if is_no_file else ""
        end = f"did you mean {' or '.join(near)}?" if near else "`onward pipelines` lists those that are."
        says = f"{nowhere}no pipeline is registered as {name!r}; {end}"
        if newest is not None:
            version = wanted.removeprefix(f"{name}@")
            says = f"the pipeline {name} has no version {version}; its newest is {newest}."
        elif removed_by:
            says = (
                f"the pipeline {name} was removed by {removed_by}; "
                f"`onward pipelines add FILE --name {name}` registers it again."
            )
        super().__init__(says)
