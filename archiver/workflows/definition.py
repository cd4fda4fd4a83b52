"""A workflow as data: named steps in groups. The groups run one after another, the steps of a group in parallel."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from archiver.errors import ArchiverError, Conflict

if TYPE_CHECKING:
    from archiver.workflows.step_run import StepRun

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
MAX_PARTS = 1_000


class BadWorkflow(ArchiverError):
    """A definition that can't run, or values that do not match one."""


class TooManyRuns(Conflict):
    code = "too_many_runs"


@dataclass(frozen=True, slots=True)
class Nothing:
    """The result of a step that has none to report."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `run` may be called again after a crash, so it has to write what it wrote before, and nothing twice."""

    name: str
    run: Callable[[StepRun], Any]
    result: type = Nothing
    rollback: Callable[[StepRun], None] | None = None
    """Removes what `run` did, completely or in part. Called for every step that was begun, also more than once."""
    parts: Callable[[StepRun], int] | None = None
    """How many parts of this step run in parallel, each as a step of its own; from the input and earlier results."""
    timeout_seconds: float = 3600.0
    attempts: int = 3


@dataclass(frozen=True, slots=True)
class Workflow:
    name: str
    version: int
    """Of input, steps and results. Raise it with every change that a run of the previous release would not survive."""
    input: type
    groups: tuple[tuple[Step, ...], ...]
    finishes: frozenset[int] = field(default_factory=frozenset)
    """Earlier versions whose runs this release can finish. Runs of other versions are refused and rolled back."""
    open_runs_per_owner: int = 5

    def __post_init__(self) -> None:
        names = [step.name for step in self.steps()]
        wrong = [name for name in (self.name, *names) if not _NAME.fullmatch(name)]
        if wrong:
            raise BadWorkflow(f"workflow {self.name!r}: {wrong[0]!r} is not a name: use lower-case words joined by hyphens")
        if len(names) != len(set(names)) or not all(self.groups) or not names:
            raise BadWorkflow(f"workflow {self.name!r}: each group needs a step, and each step a name of its own")

    def steps(self) -> Iterator[Step]:
        return (step for group in self.groups for step in group)

    def step(self, name: str) -> Step:
        found = next((step for step in self.steps() if step.name == name), None)
        if found is None:
            known = ", ".join(step.name for step in self.steps())
            raise BadWorkflow(f"workflow {self.name!r} has no step {name!r}: its steps are {known}")
        return found

    def can_run(self, version: int) -> bool:
        return version == self.version or version in self.finishes


Registry = Mapping[str, Workflow]
"""The workflows that a process can run, by name."""


def registry(*workflows: Workflow) -> dict[str, Workflow]:
    return {workflow.name: workflow for workflow in workflows}


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def encode(kind: type, value: Any) -> Any:
    """As JSON values. Raises BadWorkflow if `value` is of another type."""
    if not isinstance(value, kind):
        raise BadWorkflow(f"expected {kind.__name__}, got {type(value).__name__}")
    return _adapter(kind).dump_python(value, mode="json")


def decode(kind: type, value: Any) -> Any:
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the value"
        raise BadWorkflow(f"{kind.__name__}: {place}: {first['msg']}") from error
