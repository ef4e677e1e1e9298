"""Nothing waits by `asyncio.wait_for`, which forgets a cancellation (largesse/waiting.py)."""

import ast

from tests.conftest import ROOT


def waits_for(source: str) -> list[int]:
    """Lines of a module that use `asyncio.wait_for`, by whichever name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="asyncio"), attr="wait_for"):
                found.append(node.lineno)
            case ast.ImportFrom(module="asyncio", names=names) if any(name.name == "wait_for" for name in names):
                found.append(node.lineno)
    return sorted(found)


def test_both_ways_to_name_it_are_found_and_conditions_may_wait():
    assert waits_for("await asyncio.wait_for(x, 1)\nfrom asyncio import wait_for\nawait grown.wait_for(holds)") == [
        1,
        2,
    ]


def test_no_part_of_the_product_waits_by_it():
    paths = [path for folder in ("largesse", "services") for path in sorted((ROOT / folder).rglob("*.py"))]

    assert {path.relative_to(ROOT).as_posix(): n for path in paths if (n := waits_for(path.read_text()))} == {}
