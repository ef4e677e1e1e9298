"""Whatever a snapshot holds can be made anew from it also where its class is compiled (infra/DECISIONS.md, 18)."""

import ast
import inspect
from dataclasses import is_dataclass
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest

from services.admission import core as admission
from services.altruism import core as altruism
from services.estimator import core as estimator
from services.fairness import core as fairness
from services.leftover import core as leftover
from services.planner import core as planner
from services.router import core as router

CORES = (admission, altruism, estimator, fairness, leftover, planner, router)


def kept_in(hint, found):
    """Adds the classes that a field of this type can hold, as far as they enter a snapshot."""
    if get_origin(hint) is Annotated and any(getattr(each, "exclude", False) for each in hint.__metadata__):
        return
    if is_dataclass(hint) and hint not in found:
        found[hint] = True
        for of_field in get_type_hints(hint, include_extras=True).values():
            kept_in(of_field, found)
    for part in get_args(hint):
        kept_in(part, found)


def written_out(kind):
    """Whether the class has an `__init__` in its source, and what decorates the class."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    own = any(isinstance(line, ast.FunctionDef) and line.name == "__init__" for line in tree.body)
    return own, [ast.unparse(decorator) for decorator in tree.decorator_list]


def kept_classes():
    found = {}
    for core in CORES:
        kept_in(type(core.start(0, 1)), found)
    return [kind for kind in found if not kind.__module__.startswith("schemas.")]


def test_snapshots_hold_classes_of_every_core():
    modules = {kind.__module__.split(".")[1] for kind in kept_classes()}
    assert modules >= {core.NAME for core in CORES}


@pytest.mark.parametrize("kind", kept_classes(), ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_class_with_an_init_of_its_own_can_be_made_without_it(kind):
    own, decorators = written_out(kind)
    assert not own or "mypyc_attr(allow_interpreted_subclasses=True)" in decorators
