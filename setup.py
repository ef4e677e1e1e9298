"""Builds the package. With LARGESSE_COMPILE=1 the cores and what they call are compiled by mypyc (`make compile`).

Compiled or not, the same sources decide the same bytes. Left out is what snapshots and records are made of: pydantic
reads and orjson writes those as plain dataclasses.
"""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SHIPPED = "services.cli.shipped"
"""As what the folder `examples` is installed."""

COMPILED = {
    # Not `core`: no type variable and no generic alias can be imported from one compiled module into another.
    "largesse": ("ids", "open_round", "rounds"),
    "largesse/lifecycle": (
        "counted",
        "dag",
        "empty_nodes",
        "entitlements",
        "failing_nodes",
        "job_classes",
        "job_life",
        "promises",
        "queue_policy",
        "queue_rules",
        "remaining",
        "run_times",
        "running_limit",
        "slots",
        "state",
        "task_facts",
        "task_keys",
    ),
    "largesse/log": ("codec", "wanted"),
    "schemas": ("estimates", "placement_rules", "quantities", "queue_tree"),
    "services/admission": ("job_class", "reserve_ratio"),
    "services/admission/core": (
        "changes",
        "classes",
        "copies",
        "demand",
        "fold",
        "granted",
        "job_limits",
        "judge",
        "keys",
        "parked",
        "peaks",
        "ports",
        "reruns",
        "reservations",
        "round_fold",
        "rounds",
        "series",
        "skips",
        "state",
        "task_fold",
        "task_reports",
    ),
    "services/altruism/core": (
        "decide",
        "fold",
        "giving",
        "late_starts",
        "ledger",
        "reserving",
        "round_fold",
        "state",
        "user_holds",
        "waits",
    ),
    "services/altruism/planning": ("backward", "dagps", "forward", "orders", "plan", "sweep", "work"),
    "services/estimator": ("forecast_by_durations", "phases", "ramp", "scores"),
    "services/estimator/core": ("decide", "fold", "forecasts", "state"),
    "services/fairness": ("tree",),
    "services/fairness/accounts": (
        "amounts",
        "guarantees",
        "intervals",
        "leaf_demand",
        "queue_account",
        "queue_tree",
        "quiet_band",
        "tree_accounts",
    ),
    "services/fairness/core": (
        "accounts",
        "backoff",
        "capacity",
        "caps",
        "decide",
        "demand",
        "demands",
        "entitlement",
        "fold",
        "guarantees",
        "placeable",
        "promised",
        "queue_report",
        "round_fold",
        "rounds",
        "runs",
        "stale",
        "state",
        "tolerance",
        "user_demand",
        "user_holds",
    ),
    "services/fairness/filling": ("cell_levels", "fill_tree", "levels", "shared_tree", "unit_levels"),
    "services/fairness/hdrf": ("leaf_fill", "node_fill", "static"),
    "services/leftover/core": (
        "asks",
        "board",
        "decide",
        "failed_on",
        "fold",
        "job",
        "levels",
        "locality",
        "mix",
        "pool_breaches",
        "round",
        "round_fold",
        "shadow_order",
        "state",
        "user_holds",
    ),
    "services/leftover/core/backfill": ("gather", "running"),
    "services/leftover/core/copies": ("overdue", "speculation", "stragglers"),
    "services/leftover/core/preemption": ("changes", "claims", "ending", "lending", "runs", "wants"),
    "services/leftover/core/reservations": ("foresight", "peaks", "promises", "reserved", "revocable", "runs"),
    "services/leftover/core/shadow": ("cell", "cluster", "keys", "leaves", "state", "works"),
    "services/leftover/placement": (
        "ageing",
        "apart",
        "bands",
        "barred",
        "barred_stages",
        "board",
        "buckets",
        "candidates",
        "cell_nodes",
        "class_pools",
        "delays",
        "entries",
        "fits",
        "fragments",
        "indexed_heap",
        "job_keys",
        "keys",
        "kinds_levels",
        "kinds_part",
        "leaf_queue",
        "linked",
        "limits",
        "node_choice",
        "node_table",
        "one_list",
        "orders",
        "packing",
        "pending_reasons",
        "placements",
        "promised",
        "queue_limits",
        "ranks",
        "task_class",
        "task_classes",
        "task_span",
        "user_limits",
        "waiting_jobs",
    ),
    "services/leftover/placement/backfill": ("headroom", "lending", "timeline"),
    "services/leftover/placement/preemption": ("holdings", "taking"),
    "services/planner/core": ("decide", "fold", "nodes", "progress", "promises", "state", "waiting"),
    "services/simulator": ("attempts", "cluster", "drive", "engine", "metrics", "steps", "usage_watch"),
}
"""Package -> modules on the path of every round, by what a profile says.

Dataclasses there that rounds make often have an `__init__` written by hand: mypyc (2.4) leaves the one that is
generated to the interpreter, 1.4 us a call instead of 0.2.
"""

DIRECT_CALLS = ["-fvisibility=hidden", "-fno-semantic-interposition"]
"""For gcc and clang: all modules are one library, whose functions call each other directly, since no other library may
replace them. Without these, each such call goes through a table."""


class BuildWithCommit(build_py):
    """Writes down which commit a wheel is built from, where that is known (`largesse --version`)."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        with suppress(OSError):
            asked = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                Path(self.build_lib, "services", "cli", "commit.txt").write_text(asked.stdout)


class BuildOnAllProcessors(build_ext):
    """Compiles as many C files at a time as there are processors. The `parallel` of build_ext does so with extensions,
    and all our files are one.
    """

    def build_extensions(self) -> None:
        compile_files = self.compiler.compile

        def compile_each(sources: list[str], *arguments: Any, **named: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = pool.map(lambda source: compile_files([source], *arguments, **named), sources)
                return [name for names in objects for name in names]

        self.compiler.compile = compile_each
        super().build_extensions()


COMPILE = os.environ.get("LARGESSE_COMPILE") == "1"
extensions = []
if COMPILE:
    from mypyc.build import mypycify

    paths = [f"{package}/{module}.py" for package, modules in COMPILED.items() for module in modules]
    # A C file for each module: all of it in one file takes gcc twice as long and runs slower.
    extensions = mypycify(paths, opt_level="2", debug_level="0", verbose=False, multi_file=True)
    for extension in extensions if os.name == "posix" else ():
        extension.extra_compile_args += DIRECT_CALLS

setup(
    packages=[*find_packages(include=["schemas*", "largesse*", "services*"]), SHIPPED],
    package_dir={SHIPPED: "examples"},
    ext_modules=extensions,
    cmdclass={"build_py": BuildWithCommit, "build_ext": BuildOnAllProcessors},
    # Another version for pip: installing one of the two replaces the other.
    options={"egg_info": {"tag_build": "+compiled"}} if COMPILE else {},
)
