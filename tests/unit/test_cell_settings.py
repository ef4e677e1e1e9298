"""Settings of a service of several cells: what cannot be served is said before anything is opened."""

import os
import subprocess
import sys

import pytest

from largesse.bus.memory import MemoryBus
from largesse.known_cells import Cell, add_cell
from largesse.process.cells import placed_by_list
from largesse.settings import Settings, SettingWrong, check_cells
from tests.conftest import ROOT
from tests.unit.test_cell_list import tell


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        pytest.param({"bus": "kafka://h:1", "cells": "a,b"}, "LARGESSE_CELLS=a,b: has to be all", id="names"),
        pytest.param({"bus": "file:data", "cells": "all"}, "file:data has one cell", id="a folder"),
        pytest.param({"bus": "kafka://h:1", "cells": "all", "cell_copies": 0}, "LARGESSE_CELL_COPIES=0", id="nobody"),
    ],
)
def test_cells_that_cannot_be_served_are_refused(settings, named):
    with pytest.raises(SettingWrong) as refused:
        check_cells(Settings(**settings))

    assert named in str(refused.value)


@pytest.mark.parametrize("settings", [{}, {"bus": "kafka://h:1", "cells": "all"}, {"bus": "kafka://h:1"}])
def test_other_settings_are_as_they_were(settings):
    check_cells(Settings(**settings))


def test_what_serves_one_cell_finds_its_partition_in_the_list():
    async def story():
        bus = MemoryBus()
        await add_cell(bus, Cell("east", 7))

        assert (await placed_by_list(bus, Settings(cell="east"))).partition == 7
        with pytest.raises(SettingWrong, match="LARGESSE_CELL=west: there is no such cell; `largesse cell add west"):
            await placed_by_list(bus, Settings(cell="west"))

    tell(story)


def test_a_process_says_so_and_ends():
    said = {"LARGESSE_BUS": "file:nowhere", "LARGESSE_CELLS": "all", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "services.fairness"]
    done = subprocess.run(command, env=os.environ | said, capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 2
    assert "LARGESSE_CELLS=all: file:nowhere has one cell; several need kafka://" in done.stderr
