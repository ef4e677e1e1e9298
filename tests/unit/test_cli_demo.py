"""What `largesse demo` leaves behind: nothing where all went well, and else what tells why it did not."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from services.cli import demo
from services.cli.ending import Broken, Refused


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A demo whose cell does nothing: how it goes can be changed."""
    data = tmp_path / "cell"
    stage = SimpleNamespace(data=data, ends_well=True, is_same=True, error=None)

    def made(prefix):
        data.mkdir()
        return str(data)

    @contextmanager
    def cell(folder):
        (folder / demo.SAID).write_text("what the cell said")
        if stage.error is not None:
            raise stage.error
        yield SimpleNamespace(url="http://x", document=lambda *_, **__: {"job": "j"})

    verdict = SimpleNamespace(text=lambda: "a verdict")
    monkeypatch.setattr(demo.tempfile, "mkdtemp", made)
    monkeypatch.setattr(demo, "_cell", cell)
    monkeypatch.setattr(demo, "_follow", lambda *_: None)
    monkeypatch.setattr(demo, "_show", lambda *_: stage.ends_well)
    monkeypatch.setattr(demo, "open_source", lambda path: path)
    monkeypatch.setattr(demo, "verify", lambda source: SimpleNamespace(text=verdict.text, is_same=stage.is_same))
    monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
    return stage


def test_a_demo_that_went_well_leaves_nothing(stage, capsys):
    demo.demo()

    assert not stage.data.exists()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("changes", "ending"),
    [
        pytest.param({"ends_well": False}, Refused, id="a job"),
        pytest.param({"is_same": False}, Refused, id="the verification"),
        pytest.param({"error": Broken("the cell did not start")}, Broken, id="the cell"),
        pytest.param({"error": RuntimeError("a bug")}, RuntimeError, id="the demo itself"),
    ],
)
def test_what_went_wrong_can_be_looked_into(stage, capsys, changes, ending):
    vars(stage).update(changes)

    with pytest.raises(ending):
        demo.demo()

    assert (stage.data / demo.SAID).read_text() == "what the cell said"
    assert capsys.readouterr().err == (
        f"the cell's data is kept in {stage.data}: its log in {demo.BUS}, what it said in {demo.SAID}\n"
    )


def test_a_demo_that_was_interrupted_leaves_nothing(stage, capsys):
    stage.error = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        demo.demo()

    assert not stage.data.exists()
    assert capsys.readouterr().err == ""
