"""`largesse cell remove`: takes a cell out of the list, once nothing lives in it."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.arguments import Json, given
from services.cli.cells import Bus, asked, cell_app
from services.cli.ending import Refused, note, out, out_json
from services.cli.show import plural

if TYPE_CHECKING:
    from largesse.bus.port import Bus as AnyBus
    from largesse.known_cells import Cell

ON_THE_WAY = ("sent", "taken", "moving")
"""What the router's log says of a job that a cell has, or may get."""


@dataclass(frozen=True, slots=True)
class Life:
    """What lives in a cell. `routed`: jobs that the router has sent there, which it does not have yet. `unread`: why
    none of that is known; empty: it is."""

    jobs: int = 0
    reservations: int = 0
    series: int = 0
    nodes: int = 0
    routed: int = 0
    unread: str = ""

    def said(self) -> str:
        """In words; empty: nothing lives there."""
        counts = (
            (self.jobs, plural(self.jobs, "job")),
            (self.routed, f"{plural(self.routed, 'job')} that the router has sent there"),
            (self.reservations, plural(self.reservations, "reservation")),
            (self.series, f"{self.series:,} series"),
            (self.nodes, plural(self.nodes, "node")),
        )
        return ", ".join(text for count, text in counts if count) or self.unread


@cell_app.command("remove", short_help="Remove a cell in which nothing lives.")
def remove(
    name: Annotated[str, typer.Argument(help="the cell's name", metavar="NAME")],
    force: Annotated[bool, typer.Option("--force", help="also with jobs, reservations or nodes in it")] = False,
    bus: Bus = None,
    json: Json = False,
) -> None:
    """Remove a cell in which nothing lives: no job, no reservation, no node.

    Services with LARGESSE_CELLS=all let go of it within seconds, and the router sends nothing there any more. Its log
    stays, and everything else in its partition: `largesse cell add NAME` brings it back as it was.
    """
    cell, life = asked(bus, lambda _, each: _removed(each, given("NAME", name), force=force))
    if json:
        document = {"cell": name, "partition": cell.partition, "removed": life is not None}
        out_json(document | ({} if life is None else {"lived": asdict(life)}))
        return
    if life is None:
        out(f"{name} is removed already")
        return
    out(f"{name} is removed")
    note(f"its log stays, in partition {cell.partition}: `largesse cell add {name}` brings it back as it was")
    if life.said():
        note(f"so does what lived in it: {life.said()}")
    note(f"its agents, and services that run for it alone (LARGESSE_CELL={name}), run on until they are stopped")


async def _removed(bus: "AnyBus", name: str, *, force: bool) -> "tuple[Cell, Life | None]":
    """The cell, and what lived there; None: it was removed before. Raises Refused, BusError."""
    from largesse.known_cells import CellList, remove_cell

    listed = CellList(bus)
    await listed.read()
    if name in listed.removed:
        return listed.removed[name], None
    cell = listed.cells.get(name)
    if cell is None:
        raise Refused(f"there is no cell {name}; `largesse cell list` shows all")
    life = await life_in(bus, cell)
    if life.said() and not force:
        ends = "end them first, or have them stay as they are with --force"
        why = f"cannot be looked into ({life.unread}): --force removes it all the same" if life.unread else ""
        raise Refused(f"cell {name} {why or f'has {life.said()}: {ends}'}")
    await remove_cell(bus, cell)
    return cell, life


async def life_in(bus: "AnyBus", cell: "Cell") -> Life:
    """What the log of a cell, and the router's, say of it. Raises BusError."""
    from largesse.bus.port import BusError
    from largesse.settings import Settings
    from services.router.following import CellView

    view = CellView(bus, Settings(), cell)
    try:
        while not view.is_read:
            await view.read()
        routed = await _routed_to(bus, cell.name)
    except BusError:
        raise
    except Exception as error:
        # Whatever it is, its own services stop at it too; the cell can be removed all the same.
        return Life(unread=f"{type(error).__name__}: {error}")
    state = view.state
    jobs = {name for name, job in state.jobs.items() if not job.over}
    return Life(
        jobs=len(jobs),
        reservations=len(state.reservations),
        series=len(state.series),
        nodes=sum(not node.lost for node in state.nodes.values()),
        routed=len(routed - jobs),
    )


async def _routed_to(bus: "AnyBus", cell: str) -> set[str]:
    from largesse.log.reader import LogReader
    from schemas.topics import ROUTER_LOG
    from services.gateway.routed import Routed

    routed, reader = Routed(bus, 0), LogReader(bus, topic=ROUTER_LOG)
    end = (await bus.bounds(ROUTER_LOG, 0))[1]
    while reader.offset < end:
        for accepted in await reader.read():
            routed.take(accepted)
    return {name for name, row in routed.rows.items() if row.state in ON_THE_WAY and cell in (row.cell, row.to)}
