"""Classes that a compiler has taken the annotations and slots from are read as their source has them."""

import sys
from dataclasses import dataclass, field, fields
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_loader

import pytest

from largesse.lifecycle.state import Parked, RunningLimits
from largesse.log.compiled_types import readable
from largesse.log.snapshots import dump, load

SOURCE = '''
from dataclasses import dataclass, field
from largesse.lifecycle.state import RunningLimits

@dataclass
class Inner:
    """Something."""

    spans: list[tuple[int, str]]

    def width(self) -> int:
        wide: int = len(self.spans)
        return wide

@dataclass
class Outer:
    inner: dict[str, Inner]
    limits: RunningLimits = field(default_factory=RunningLimits)
    maybe: Inner | None = None
'''


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """A module as mypyc would leave it: loaded from a library, with the fields of dataclasses by outermost class."""
    name = f"compiled_sample_of_{tmp_path.name}"  # What was made readable once stays so.
    (tmp_path / "sample.py").write_text(SOURCE)
    module = module_from_spec(spec_from_loader(name, loader=None))
    exec(compile(SOURCE, "sample.py", "exec"), module.__dict__)
    library = str(tmp_path / "sample.cpython-311-x86_64-linux-gnu.so")
    module.__file__, module.__spec__ = library, ModuleSpec(name, ExtensionFileLoader(name, library))
    monkeypatch.setitem(sys.modules, name, module)
    for kind in (module.Inner, module.Outer):
        for each in fields(kind):
            each.type = {"spans": list, "inner": dict, "limits": RunningLimits, "maybe": type}[each.name]
    return module


def test_a_compiled_class_comes_back_from_what_was_written(compiled):
    inner = compiled.Inner([(1, "a")])
    state = compiled.Outer({"x": inner}, RunningLimits({"q": 1}, parked={"q": [Parked("j", 0, 1)]}), inner)

    again = load(compiled.Outer, dump(state))

    assert again == state
    assert type(again.inner["x"]) is type(again.maybe) is compiled.Inner
    assert again.inner["x"].spans == [(1, "a")]


def test_a_compiled_class_without_its_source_says_which_file_is_missing(compiled, tmp_path):
    (tmp_path / "sample.py").unlink()

    with pytest.raises(OSError, match=r"sample\.py"):
        readable(compiled.Outer)


def test_a_class_that_is_not_compiled_stays_as_it_is():
    @dataclass
    class Plain:
        sums: dict[str, int] = field(default_factory=dict)

    assert readable(Plain) is Plain
    assert [each.type for each in fields(Plain)] == [dict[str, int]]
    assert not hasattr(Plain, "__slots__")
