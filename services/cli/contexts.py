"""What the options `--context` and `--cell` say, and the library's way in to a cell as commands ask it.

What is wrong there (`AccessWrong`) ends a command as wrong usage.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from largesse import access, contexts
from largesse.access import Access
from largesse.contexts import VARIABLE, AccessWrong, Config, Context, name_fault
from services.cli.ending import Wrong

P = ParamSpec("P")
T = TypeVar("T")

asked: ContextVar[str | None] = ContextVar("context", default=None)
"""What `--context` says, for the command that runs."""
asked_cell: ContextVar[str | None] = ContextVar("cell", default=None)
"""What `--cell` says."""


def as_wrong(call: Callable[P, T]) -> Callable[P, T]:
    """The same, but what it finds wrong ends the command. Raises Wrong."""

    @wraps(call)
    def told(*given: P.args, **named: P.kwargs) -> T:
        try:
            return call(*given, **named)
        except AccessWrong as fault:
            raise Wrong(str(fault)) from None

    return told


def way_in() -> Access:
    """What the options of the command that runs ask for."""
    return Access(asked.get(), asked_cell.get(), "--")


config_path = as_wrong(contexts.config_path)
read_config = as_wrong(contexts.read_config)
write_config = as_wrong(contexts.write_config)
named = as_wrong(contexts.named)
checked_url = as_wrong(access.checked_url)
checked_cell = as_wrong(access.checked_cell)
checked_user = as_wrong(access.checked_user)

__all__ = ["VARIABLE", "AccessWrong", "Config", "Context", "name_fault"]
