"""`largesse cell`: the cells of a deployment on Kafka. What is added is served by whatever runs with
LARGESSE_CELLS=all, without a restart.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from services.cli.arguments import Json, given
from services.cli.ending import Unanswered, Wrong, note, out, out_json
from services.cli.groups import Group

if TYPE_CHECKING:
    from largesse.bus.port import Bus as AnyBus
    from largesse.known_cells import Cell

SCHEME = "kafka://"
SCHEMES = (SCHEME, "kafkas://")
SILENT_SECONDS = 2.0
"""A command that waits for longer says for what."""
T = TypeVar("T")

cell_app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode=None)


@cell_app.callback()
def _cell() -> None:
    """Add, list and remove the cells of a deployment on Kafka."""


Bus = Annotated[
    str | None,
    typer.Option("--bus", help="kafka://HOST:PORT  [default: LARGESSE_BUS]", metavar="BUS", show_default=False),
]


@cell_app.command("add", short_help="Add a cell while everything runs.")
def add(
    name: Annotated[str, typer.Argument(help="the cell's name", metavar="NAME")], bus: Bus = None, json: Json = False
) -> None:
    """Add a cell. Services that run with LARGESSE_CELLS=all serve it within seconds.

    It gets a partition of every topic: one that nobody has used, else all topics grow. A cell whose log is there
    already, since it was served by itself, keeps its place. A cell that is there is left as it is.
    """
    from largesse.known_cells import NAME, NAME_RULE

    if not NAME.fullmatch(given("NAME", name)):
        raise Wrong(f"NAME: {name!r} {NAME_RULE}")
    cell, was_there = asked(bus, lambda address, each: _add(address, each, name))
    if json:
        out_json({"cell": cell.name, "partition": cell.partition, "added": not was_there})
    else:
        out(f"{cell.name} {'is there already' if was_there else 'is added'}, as partition {cell.partition}")


@cell_app.command("list", short_help="List cells.")
def list_cells(bus: Bus = None, json: Json = False) -> None:
    """Cells, each with its partition of every topic."""
    from services.cli.show import drawing

    found = asked(bus, lambda _, each: _listed(each))
    if json:
        out_json([{"cell": cell.name, "partition": cell.partition} for cell in found])
    else:
        out(drawing()(("cell", "partition"), [(cell.name, str(cell.partition)) for cell in found], kinds="kr"))


def asked(bus: str | None, ask: "Callable[[str, AnyBus], Awaitable[T]]") -> "T":
    """What is asked of the cluster at an address. Raises Wrong, Unanswered."""
    from largesse.bus.kafka.bus import PATIENCE_MS
    from largesse.bus.open import BusUrlWrong, open_bus
    from largesse.bus.port import BusError
    from largesse.telemetry import configure

    address = bus if bus is not None else os.environ.get("LARGESSE_BUS", "")
    if not address.startswith(SCHEMES):
        raise Wrong(
            f"--bus: several cells need Kafka: write {SCHEME}HOST:PORT" + (f"; is {address}" if address else "")
        )
    configure("console", level="error")

    async def work() -> T:
        opened = open_bus(address, client_id="largesse-cells")
        asking = asyncio.ensure_future(ask(address, opened))
        try:
            done, _ = await asyncio.wait((asking,), timeout=SILENT_SECONDS)
            if not done:
                note(f"no answer from {address} yet: trying for {PATIENCE_MS / 1_000:.0f} s (Ctrl-C ends it)")
            return await asking
        finally:
            asking.cancel()
            await opened.close()

    try:
        return asyncio.run(work())
    except BusUrlWrong as error:
        raise Wrong(f"--bus: {error}") from None
    except BusError as error:
        raise Unanswered(f"--bus: {error}", f"no answer from {address}") from None


async def _add(address: str, bus: "AnyBus", name: str) -> "tuple[Cell, bool]":
    from largesse.bus.kafka.cluster import cluster_of
    from largesse.process.cell_adding import put_in

    return await put_in(cluster_of(address), bus, name)


async def _listed(bus: "AnyBus") -> "list[Cell]":
    from largesse.known_cells import CellList

    listed = CellList(bus)
    await listed.read()
    return list(listed.cells.values())
