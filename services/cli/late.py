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
    source = ("services.cli.keeping", "archive_app")


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


def add_groups(app: typer.Typer) -> None:
    """Adds all but those that belong to another group."""
    app.add_typer(late(ReserveGroup, "Reserve capacity in time for jobs with deadlines."), name="reserve")
    app.add_typer(late(TokenGroup, "Make, list and revoke tokens; they say who asks a cell."), name="token")
    app.add_typer(late(CellGroup, "Add, list and remove the cells of a deployment on Kafka."), name="cell")
    app.add_typer(late(ArchiveGroup, "Keep a cell's log for years, in a folder or an object store."), name="archive")
    app.add_typer(late(CheckpointGroup, "Keep the states of all cores, and trim a log."), name="checkpoint")
    app.add_typer(late(AdminGroup, "Repair a cell that cannot continue by itself."), name="admin")
