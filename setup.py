"""Builds the package. With LARGESSE_COMPILE=1 the cores and what they call are compiled by mypyc (`make compile`).

Compiled or not, the same sources decide the same bytes. Left out is what snapshots and records are made of: pydantic
reads and orjson writes those as plain dataclasses.
"""

import os  # noqa: TID251 -- A build is told by its environment, and runs nowhere else.

from setuptools import setup

COMPILED = {
    "largesse": ("ids",),
    "services/admission": ("core", "core_judge", "core_rounds"),
    "services/altruism": ("core",),
    "services/fairness": ("core", "core_levels", "core_queues", "core_tree", "hdrf", "ledger", "spans", "water"),
    "services/leftover": ("core", "core_board", "headroom", "keyed", "line", "placement", "reasons", "room", "seats"),
    "services/simulator": ("cluster", "engine", "metrics"),
}
"""Package -> modules on the path of every round, by what a profile says."""

if os.environ.get("LARGESSE_COMPILE") == "1":
    from mypyc.build import mypycify

    paths = [f"{package}/{module}.py" for package, modules in COMPILED.items() for module in modules]
    setup(ext_modules=mypycify(paths, opt_level="2", debug_level="0", verbose=False))
else:
    setup()
