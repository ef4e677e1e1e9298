"""Plain data that pydantic can read also where its classes are compiled (infra/DECISIONS.md, 18).

Of an annotation mypyc keeps the outermost class, `dict` of `dict[str, Job]`, or nothing, as of a `Literal`; and it
keeps no `__slots__`. Both are got back from the source, which lies beside every compiled module. A class with an
`__init__` written out allows interpreted subclasses: only then can pydantic make one without calling that.
"""

import ast
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType


def readable(kind: type) -> type:
    """`kind`, now that pydantic can read it and whatever its fields can hold. Raises OSError where a compiled module
    has lost its source."""
    _restore(kind.__module__)
    return kind


@cache
def _restore(name: str) -> None:
    """A module's dataclasses and named tuples, and those of every module that it has some from."""
    module = sys.modules[name]
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and _is_plain_data(kind)]
    if _is_compiled(module):
        annotations = _annotations(module)
        for kind in kinds:
            if kind.__module__ == name:
                _annotate(kind, annotations[kind.__name__])
    for other in sorted({kind.__module__ for kind in kinds} - {name}):
        _restore(other)


def _is_plain_data(kind: type) -> bool:
    return is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _is_compiled(module: ModuleType) -> bool:
    return module.__spec__ is not None and isinstance(module.__spec__.loader, ExtensionFileLoader)


def _annotations(module: ModuleType) -> dict[str, dict[str, str]]:
    """Class -> field -> what stands behind its colon."""
    path = Path(str(module.__file__))
    tree = ast.parse(path.with_name(f"{path.name.partition('.')[0]}.py").read_text())
    return {
        statement.name: {
            line.target.id: ast.unparse(line.annotation)
            for line in statement.body
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        }
        for statement in tree.body
        if isinstance(statement, ast.ClassDef)
    }


def _annotate(kind: type, annotations: dict[str, str]) -> None:
    kind.__annotations__ = annotations
    if not is_dataclass(kind):
        return
    for field in fields(kind):
        if field.name in annotations:  # Else it is inherited: the field is the base's, and gets its type there.
            field.type = annotations[field.name]
    if not kind.__subclasses__():  # A base is never read itself, and with slots no compiled class could extend it.
        kind.__slots__ = tuple(annotations)  # type: ignore[attr-defined]
