"""`Any` belongs where documents come in, and nowhere else: how many lines have it may only fall."""

import ast

from tests.conftest import ROOT

LINES_WITH_ANY_MAX = 185
"""Lower it whenever lines with `Any` go; what only passes through is `object`, and what is known has its type."""


def lines_with_any(source: str) -> int:
    """Lines of a module that use the name `Any`; imports of it and prose do not count."""
    return len({node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name) and node.id == "Any"})


def test_a_line_counts_once_and_prose_not_at_all():
    assert (
        lines_with_any('from typing import Any\n"""Any."""\ndef f(a: Any, b: Any) -> None:\n    c: Any = 1  # Any\n')
        == 2
    )


def test_no_more_lines_have_any_than_before():
    lines = {
        path.relative_to(ROOT).as_posix(): lines_with_any(path.read_text())
        for folder in ("schemas", "largesse", "services")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    found = {path: count for path, count in lines.items() if count}

    assert sum(found.values()) <= LINES_WITH_ANY_MAX, found


def test_no_core_and_no_rule_of_the_lifecycle_has_any():
    rooms = [
        *ROOT.glob("services/*/core/*.py"),
        *ROOT.glob("services/*/core.py"),
        *ROOT.glob("largesse/lifecycle/*.py"),
    ]

    assert {path.relative_to(ROOT).as_posix(): n for path in rooms if (n := lines_with_any(path.read_text()))} == {}
