"""What the house says of one file: each finding is a line `path:line: what is wrong`."""

import ast
from collections.abc import Iterable, Iterator

from tests.house.rooms import Room, may_import, room_of
from tests.house.set_walks import set_walks

MODULE_LINES, TEST_LINES = 450, 500
"""Lines beyond which a module, or a test, is long. That is a warning and fails nothing: a cap breeds files that are cut
by length instead of by what they do.
"""
BUILTINS_BANNED = frozenset({"__import__", "breakpoint", "eval", "exec", "hash", "id", "input", "open", "print"})
"""I/O, and what follows an object's address or the hash seed: import bans do not see these."""


def inspect(path: str, source: str) -> list[str]:
    """Findings on one file in the order of its lines; `path` is below the project root, with forward slashes."""
    room = room_of(path)
    tree = ast.parse(source, path)
    found = [*_imports(room, path, tree), *_sizes(room, tree)]
    found += [(line, "a walk over a set: say the order with sorted()") for line in set_walks(tree)]
    if room.pure:
        found += _impurities(tree)
    if room.whole:
        found += _fractions(tree)
    return [f"{path}:{line}: {what}" for line, what in sorted(found)]


def _imports(room: Room, path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in _imported(path, node):
                if not may_import(room, path, name):
                    yield node.lineno, f"{room.name} may not import {name}"


def _imported(path: str, node: ast.Import | ast.ImportFrom) -> list[str]:
    """Absolute names: modules, or `module.name` where a name is taken out of one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package = path.split("/")[: -node.level] if node.level else []
    start = ".".join([*package, *([node.module] if node.module else [])])
    return [f"{start}.{alias.name}" for alias in node.names]


def long_files(files: Iterable[tuple[str, str]]) -> list[str]:
    """Of (path, source), those that are long: the path, and of how many lines."""
    found = []
    for path, source in files:
        lines = len(source.splitlines())
        if lines > (TEST_LINES if path.startswith(("tests/", "benchmarks/")) else MODULE_LINES):
            found.append(f"{path}: {lines} lines")
    return found


def _sizes(room: Room, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            if length > room.lines_max:
                yield node.lineno, f"{node.name} has {length} lines, here a function has at most {room.lines_max}"


def _impurities(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS_BANNED:
                yield node.lineno, f"{name}() has no place in a pure module"
            case ast.ExceptHandler(type=caught, body=body) if _is_broad(caught) and not _stops(body):
                yield node.lineno, "a broad except that carries on with half a state"


def _is_broad(caught: ast.expr | None) -> bool:
    if isinstance(caught, ast.Tuple):
        return any(_is_broad(one) for one in caught.elts)
    return caught is None or (isinstance(caught, ast.Name) and caught.id in {"BaseException", "Exception"})


def _stops(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Raise | ast.Assert) for statement in body for node in ast.walk(statement))


def _fractions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=float()):
                yield node.lineno, "a float in a core: quantities are whole"
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield node.lineno, "true division in a core: quantities are whole"
            case ast.Call(func=ast.Name(id="float")):
                yield node.lineno, "float() in a core: quantities are whole"
