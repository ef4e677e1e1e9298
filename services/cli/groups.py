"""Groups of commands, whose complaints about a command line say what would be right."""

import re
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click.core import Context  # What typer calls its groups with.
    from typer._click.exceptions import NoSuchOption
else:
    NoSuchOption = import_module(typer.BadParameter.__module__).NoSuchOption  # Of click, or of typer's copy of it.

_PORT = re.compile(r"'[^']*:([0-9]{1,5})' is not a whole number")
_RANGE = re.compile(r"is not in the range (-?\d+)<=x<=(-?\d+)\.")
_LEAST = re.compile(r"is not in the range x>=(-?\d+)\.")


class Group(TyperGroup):
    """A group that lists its commands where one is named that it does not have, and none is like it."""

    def resolve_command(self, ctx: "Context", args: list[str]) -> Any:
        """The command that the arguments name. Raises UsageError."""
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names and not get_close_matches(args[0], names):
            ctx.fail(f"No such command '{args[0]}'. Commands: {', '.join(names)}.")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """What stands before the command. Raises UsageError, which says where an option belongs that stands there."""
        try:
            return super().parse_args(ctx, args)
        except NoSuchOption as fault:
            fault.message = option_placed(fault.message, before=True)
            raise

    def invoke(self, ctx: "Context") -> object:
        """Runs the command that is named. Raises UsageError, about a number in plain words."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as fault:
            fault.message = numbers_worded(fault.message)
            if fault.param is not None and fault.param.name == "http" and (port := _PORT.search(fault.message)):
                fault.message += f" Write the port alone: --http {port[1]}"
            raise
        except NoSuchOption as fault:
            fault.message = option_placed(fault.message, before=False)
            raise


class LateGroup(Group):
    """A group of commands whose module takes long to import: it is, when one of them is named or all are listed.

    `source`: module and name of the group's app.
    """

    source: tuple[str, str]

    def list_commands(self, ctx: "Context") -> list[str]:
        """Their names, in order."""
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: "Context", name: str) -> Any:
        """The command of that name, or None."""
        self._load()
        return super().get_command(ctx, name)

    def _load(self) -> None:
        if not self.commands:
            module, name = self.source
            self.commands = typer.main.get_group(getattr(import_module(module), name)).commands


def option_placed(message: str, *, before: bool) -> str:
    """What is said of an unknown option, with its place where there is one. `before`: it stood before the command."""
    if before and message.endswith(" --url"):
        return "No such option here: --url. It goes after the command, like largesse get jobs --url URL"
    for option in ("--context", "--cell"):
        if not before and message.endswith(f" {option}"):
            return f"No such option here: {option}. It goes before the command, like largesse {option} NAME get jobs"
    return message


def numbers_worded(message: str) -> str:
    """What a command line's parser says of a number, in words of its user."""
    message = re.sub(r"is not a valid int(eger)?( range)?\.", "is not a whole number.", message)
    message = _RANGE.sub(r"has to be from \1 to \2.", message)
    return _LEAST.sub(r"has to be at least \1.", message)
