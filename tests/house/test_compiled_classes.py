"""Which classes are compiled, and which of those an interpreted class may inherit from."""

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

SHIPPED = ("schemas", "largesse", "services")


def compiled_modules() -> dict[str, Path]:
    """The modules that setup.py compiles, by name."""
    named = next(
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / "setup.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED"
    )
    paths = [Path(package) / f"{module}.py" for package, modules in named.items() for module in modules]
    return {".".join(path.with_suffix("").parts): ROOT / path for path in paths}


def closed_classes(modules: dict[str, Path]) -> set[tuple[str, str]]:
    """Compiled classes, by module and name, that no interpreted one may inherit from."""
    return {
        (module, node.name)
        for module, path in modules.items()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
        and not any("allow_interpreted_subclasses=True" in ast.unparse(each) for each in node.decorator_list)
    }


def inherited(source: str) -> list[tuple[str, str, str]]:
    """The classes of a module, each with module and name of an imported one that it inherits from."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return [
        (node.name, *imported[ast.unparse(base)])
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base) in imported
    ]


def test_no_interpreted_class_inherits_from_a_compiled_one_that_does_not_allow_it():
    compiled = compiled_modules()
    closed = closed_classes(compiled)
    assert len(closed) > 100

    found = [
        (path.relative_to(ROOT).as_posix(), name, base)
        for folder in SHIPPED
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path not in compiled.values()
        for name, *base in inherited(path.read_text())
        if tuple(base) in closed
    ]

    assert found == []


@pytest.mark.parametrize("words", ["class B(A): pass", "def f():\n    class B(A): pass"])
def test_an_inherited_class_is_found_by_the_name_it_was_imported_as(words):
    assert inherited(f"from x.y import Z as A\n{words}") == [("B", "x.y", "Z")]
