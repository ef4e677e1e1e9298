"""Groups of commands whose modules are imported when one of their commands is named."""

import typer

from services.cli.groups import LateGroup


class ImportGroup(LateGroup):
    source = ("services.cli.importing", "import_app")


class ReserveGroup(LateGroup):
    source = ("services.cli.reserving", "reserve_app")


class TokenGroup(LateGroup):
    source = ("services.cli.access", "token_app")


class CellGroup(LateGroup):
    source = ("services.cli.cell_group", "cell_app")


class ArchiveGroup(LateGroup):
    source = ("services.cli.archiving", "archive_app")


class CheckpointGroup(LateGroup):
    source = ("services.cli.checkpoint_commands", "checkpoint_app")


class AdminGroup(LateGroup):
    source = ("services.cli.admin", "admin_app")


def late(group: type[LateGroup], text: str) -> typer.Typer:
    """An app of that group, which says this of itself."""
    short = text.partition(";")[0].removesuffix(".") + "."
    app = typer.Typer(cls=group, no_args_is_help=True, rich_markup_mode=None, help=text, short_help=short)
    app.callback()(lambda: None)  # A group has to have one before it has commands.
    return app
