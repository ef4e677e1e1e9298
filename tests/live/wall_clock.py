"""The wall clock of a running process, moved from outside. Nothing else of its time changes."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("wall_clock.c")


def compiled(folder: Path) -> Path:
    """The library to preload. Skips where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to move the wall clock of a process with: install gcc")
    library = folder / "wall_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
    return library


class WallClock:
    """Of every process that is started with `environment`. `library`: see `compiled`."""

    def __init__(self, library: Path, place: Path) -> None:
        self._place = place
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_AHEAD": str(place)}
        self.is_ahead(0)

    def is_ahead(self, seconds: int) -> None:
        """From now on it is so far ahead; below zero: behind."""
        draft = self._place.with_suffix(".draft")
        draft.write_text(str(seconds))
        draft.rename(self._place)
