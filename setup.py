"""Builds the package. With LARGESSE_COMPILE=1 the cores and what they call are compiled by mypyc (`make compile`).

Compiled or not, the same sources decide the same bytes. Left out is what snapshots and records are made of: pydantic
reads and orjson writes those as plain dataclasses.
"""

import os  # noqa: TID251 -- A build is told by its environment, and runs nowhere else.

from setuptools import setup

COMPILED = {
    "largesse": ("codec", "core", "ids"),
    "schemas": ("followed", "gate", "graph", "quantities", "queue_tree", "track"),
    "services/admission": (
        "classes",
        "core",
        "core_granted",
        "core_judge",
        "core_names",
        "core_rounds",
        "core_skips",
        "core_state",
        "core_tasks",
    ),
    "services/altruism": ("core", "core_state"),
    "services/fairness": (
        "core",
        "core_counts",
        "core_levels",
        "core_queues",
        "core_rests",
        "core_state",
        "core_tree",
        "hdrf",
        "ledger",
        "spans",
        "tree",
        "water",
    ),
    "services/leftover": (
        "core",
        "core_board",
        "core_state",
        "headroom",
        "keyed",
        "line",
        "maxima",
        "placement",
        "reasons",
        "room",
        "seats",
    ),
    "services/simulator": ("cluster", "drive", "engine", "metrics"),
}
"""Package -> modules on the path of every round, by what a profile says."""

if os.environ.get("LARGESSE_COMPILE") == "1":
    from mypyc.build import mypycify

    paths = [f"{package}/{module}.py" for package, modules in COMPILED.items() for module in modules]
    setup(ext_modules=mypycify(paths, opt_level="2", debug_level="0", verbose=False))
else:
    setup()
