"""The rooms of the code, floor by floor: `python -m tests.house.floors` (or `make rooms`) prints them.

A room is a module at the top of `schemas`, `largesse` or a service, or a folder below one. It stands one floor above
the highest room that it imports. Imports under `if TYPE_CHECKING` do not count: they are not there when code runs.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPS = ("schemas", "largesse", "services")


@dataclass(slots=True)
class Room:
    """`name` as it is imported, `about`: the first sentence of its docstring, `imports`: the rooms that it needs."""

    name: str
    about: str = ""
    lines: int = 0
    imports: set[str] = field(default_factory=set)


def name_of(module: str) -> str:
    """The room that a module belongs to: `largesse.bus` of `largesse.bus.file.lines`."""
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[0] == "services" else 2])


def read_rooms(root: Path = ROOT) -> dict[str, Room]:
    """Every room below `root` with what it imports."""
    files = sorted(path for top in TOPS for path in (root / top).rglob("*.py"))
    modules = {module_of(path.relative_to(root)): path for path in files}
    rooms: dict[str, Room] = {}
    for module, path in modules.items():
        source = path.read_text()
        tree = ast.parse(source)
        room = rooms.setdefault(name_of(module), Room(name_of(module)))
        room.lines += len(source.splitlines())
        if module == room.name:
            room.about = first_sentence(ast.get_docstring(tree) or "")
        room.imports |= {name_of(other) for other in imported(tree, modules)} - {room.name}
    return rooms


def module_of(path: Path) -> str:
    """`schemas/edge/jobs.py` -> `schemas.edge.jobs`; a package is its `__init__`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence, on one line."""
    line = " ".join(text.split("\n\n")[0].split())
    return line.partition(". ")[0].rstrip(".")


def imported(tree: ast.Module, modules: Iterable[str]) -> set[str]:
    """Modules of this project that a file imports when it runs, also inside functions."""
    known = set(modules)
    found = set()
    for node in _walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (below & known) | ({node.module} if below - known else set())
    return found & known


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those under `if TYPE_CHECKING`."""
    yield node
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def floors_of(rooms: dict[str, Room]) -> list[list[Room]]:
    """Floors from the ground up, in the order of names. Raises ValueError where rooms import each other in a circle,
    with their names.
    """
    floors: list[list[Room]] = []
    placed: set[str] = set()
    left = dict(rooms)
    while left:
        floor = [room for room in left.values() if room.imports <= placed]
        if not floor:
            raise ValueError(f"import each other in a circle: {', '.join(sorted(_circle(left)))}")
        floors.append(sorted(floor, key=lambda room: room.name))
        placed |= {room.name for room in floor}
        left = {name: room for name, room in left.items() if name not in placed}
    return floors


def _circle(left: dict[str, Room]) -> list[str]:
    """One circle among rooms each of which imports another one of them."""
    path = [min(left)]
    while True:
        following = min(name for name in left[path[-1]].imports if name in left)
        if following in path:
            return path[path.index(following) :]
        path.append(following)


def table(top: str, rooms: dict[str, Room]) -> list[str]:
    """Lines that show the rooms of one top folder or service, highest floor first."""
    names = inside(top, rooms)
    own = {name: replace(room, imports=room.imports & names) for name, room in rooms.items() if name in names}
    floors = floors_of(own)
    rows = [f"{top}: {len(own)} rooms on {len(floors)} floors"]
    for number in range(len(floors), 0, -1):
        for i, room in enumerate(floors[number - 1]):
            mark = f"{number:>3}" if i == 0 else "   "
            short = room.name.removeprefix(f"{top}.")
            rows.append(f"{mark}  {short:<20} {room.lines:>5} lines  {room.about}".rstrip())
    return rows


def inside(top: str, rooms: Iterable[str]) -> set[str]:
    """Names of rooms at or below `top`."""
    return {name for name in rooms if name == top or name.startswith(f"{top}.")}


def tops_of(rooms: Iterable[str]) -> list[str]:
    """What is shown as one table each: `schemas`, `largesse`, and every service."""
    services = {".".join(name.split(".")[:2]) for name in rooms if name.startswith("services.")}
    return ["schemas", "largesse", *sorted(services)]


def main() -> None:
    rooms = read_rooms()
    print("\n\n".join("\n".join(table(top, rooms)) for top in tops_of(rooms)))


if __name__ == "__main__":
    main()
