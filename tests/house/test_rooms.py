"""Every file keeps to the imports, sizes and orders of its room, and the inspection of that sees what it should."""

import tomllib
import warnings
from pathlib import Path

import pytest

import largesse
import schemas
import services
from tests.conftest import ROOT
from tests.house.inspection import MODULE_LINES, TEST_LINES, inspect, long_files
from tests.house.rooms import CLOCK_AND_CHANCE, may_import, room_of

FOLDERS = ("schemas", "largesse", "services")
FILES = sorted(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", FILES)
def test_the_file_keeps_to_its_room(path):
    findings = inspect(path, (ROOT / path).read_text())

    assert findings == [], "\n" + "\n".join(findings)


@pytest.mark.parametrize("package", [schemas, largesse, services], ids=lambda package: package.__name__)
def test_packages_come_from_this_checkout(package):
    assert Path(package.__file__).resolve() == ROOT / package.__name__ / "__init__.py"


CORE = "services/leftover/core/fold.py"
POLICY = "services/leftover/placement/board.py"
SHELL = "services/leftover/shell.py"


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param("schemas/jobs.py", "from largesse.ids import log_id", id="the vocabulary imports nothing of ours"),
        pytest.param("schemas/jobs.py", "import orjson", id="the vocabulary encodes nothing"),
        pytest.param("schemas/jobs.py", "from pathlib import Path", id="the vocabulary touches no files"),
        pytest.param(
            "schemas/jobs.py", "from schemas.export import main", id="the vocabulary does not need its export"
        ),
        pytest.param(
            "largesse/core.py",
            "from largesse.log.codec import decode",
            id="the pure engine needs no other part",
        ),
        pytest.param("largesse/ids.py", "import uuid", id="ids are not drawn"),
        pytest.param("largesse/shell.py", "import services.leftover.core", id="the engine does not know its services"),
        pytest.param("largesse/log/codec.py", "import time", id="bytes have no clock"),
        pytest.param("largesse/shell.py", "import prometheus_client", id="metrics are kept in telemetry"),
        pytest.param(CORE, "import time", id="a core has no clock"),
        pytest.param(CORE, "from time import time", id="a core has no clock by another name"),
        pytest.param(CORE, "import random as r", id="a core has no dice"),
        pytest.param(CORE, "import asyncio", id="a core waits for nothing"),
        pytest.param(CORE, "import numpy", id="a core computes in its policy"),
        pytest.param(CORE, "from services.fairness import hdrf", id="a core imports no other service"),
        pytest.param(CORE, "from services.leftover import shell", id="a core does not import its shell"),
        pytest.param(CORE, "from .. import shell", id="a core does not import its shell from beside it"),
        pytest.param(CORE, "from ...fairness.hdrf import levels", id="a relative import leads to no other service"),
        pytest.param(CORE, "from largesse.bus import port", id="a core has no bus"),
        pytest.param(CORE, "from tests.builders import job", id="nothing imports tests"),
        pytest.param(CORE, "def f():\n    import os", id="an import inside a function counts"),
        pytest.param(
            CORE, "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import os", id="an import for types counts"
        ),
        pytest.param("services/planner/core.py", "from services.planner import milp", id="a core waits for no solver"),
        pytest.param(POLICY, "from schemas import Record", id="a policy knows no records"),
        pytest.param(POLICY, "from schemas.jobs import JobAdmitted", id="a policy knows job graphs only"),
        pytest.param(POLICY, "from largesse.ids import draw", id="draws are passed into a policy"),
        pytest.param(POLICY, "from services.leftover.core import State", id="a policy does not know its core"),
        pytest.param(POLICY, "from numpy import random", id="numpy has dice too"),
        pytest.param(SHELL, "from services.altruism import core", id="a shell runs its own core"),
        pytest.param(SHELL, "import fastapi", id="only the gateway speaks HTTP"),
        pytest.param("services/agent/shell.py", "import aiomqtt", id="MQTT goes through the engine"),
        pytest.param(
            "services/gateway/http/app.py", "from services.replay import why", id="replay runs in a process of its own"
        ),
        pytest.param(
            "services/gateway/view/jobs.py",
            "from services.gateway.documents import Document",
            id="the view is not worded",
        ),
        pytest.param("services/gateway/documents/jobs.py", "import fastapi", id="documents know no HTTP"),
        pytest.param(
            "services/planner/milp.py",
            "from services.planner.core import State",
            id="the solver does not know the core",
        ),
        pytest.param(
            "services/simulator/run.py", "from services.admission.sequencer import run", id="a simulator runs no shell"
        ),
        pytest.param("services/simulator/run.py", "import services.gateway.http.app", id="a simulator has no gateway"),
        pytest.param("services/replay/verify.py", "import typer", id="only the command line talks to people"),
        pytest.param(
            "services/cli/main.py", "import services.leftover.__main__", id="a process is started, not imported"
        ),
    ],
)
def test_a_forbidden_import_is_found(path, line):
    found = inspect(path, line + "\n")

    assert len(found) == 1
    assert "may not import" in found[0]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param(
            "schemas/jobs.py", "import re\nfrom typing import Literal\nfrom pydantic import BaseModel", id="vocabulary"
        ),
        pytest.param(
            "schemas/export.py", "import json\nfrom pathlib import Path\nfrom schemas import registry", id="export"
        ),
        pytest.param("largesse/ids.py", "from hashlib import sha256\nfrom schemas.envelope import Record", id="ids"),
        pytest.param("largesse/bus/file/bus.py", "import asyncio, os\nfrom largesse.bus.port import Bus", id="a bus"),
        pytest.param("largesse/telemetry.py", "import prometheus_client\nimport structlog", id="telemetry"),
        pytest.param(
            CORE, "from largesse.ids import draw\nfrom services.leftover import placement\nimport schemas", id="a core"
        ),
        pytest.param(
            "services/admission/core/due.py", "from services.admission.core.state import State", id="a core in parts"
        ),
        pytest.param(
            POLICY,
            "import numpy as np\nfrom schemas.jobs import Stage\nfrom largesse.lifecycle.dag import graph_of",
            id="a policy",
        ),
        pytest.param(
            "services/altruism/packing.py", "from services.altruism.orders import by_depth", id="policies side by side"
        ),
        pytest.param("services/leftover/__main__.py", "import asyncio\nfrom largesse import shell", id="a process"),
        pytest.param(
            "services/planner/solve.py", "import json, sys, time\nfrom services.planner import greedy", id="a filter"
        ),
        pytest.param(
            "services/planner/milp.py", "import highspy\nfrom services.planner import greedy", id="the solver"
        ),
        pytest.param("services/gateway/http/app.py", "import fastapi\nfrom largesse.bus import port", id="the gateway"),
        pytest.param(
            "services/simulator/run.py", "from services.fairness import core, hdrf\nimport gzip", id="the simulator"
        ),
        pytest.param("services/cli/main.py", "import typer\nfrom services.agent import shell", id="the command line"),
    ],
)
def test_an_allowed_import_is_not_found(path, line):
    assert inspect(path, line + "\n") == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("for x in {1, 2}: pass", id="a display"),
        pytest.param("for x in set(items): pass", id="a call"),
        pytest.param("for x in {y for y in items}: pass", id="a comprehension"),
        pytest.param("s = set(items)\nfor x in s: pass", id="a name"),
        pytest.param("s: set[int] = made()\nfor x in s: pass", id="an annotated name"),
        pytest.param("def f(s: frozenset[int]):\n    for x in s: pass", id="a parameter"),
        pytest.param("s = set()\ndef f():\n    return [x for x in s]", id="a name from outside"),
        pytest.param("class A:\n    seen: set[str]\ndef f(a):\n    for x in a.seen: pass", id="a field"),
        pytest.param("for x in a.keys() & b.keys(): pass", id="arithmetic of keys"),
        pytest.param("for x in set(a) - b: pass", id="a difference"),
        pytest.param("s = set(a)\nfor x in s.union(b): pass", id="a union"),
        pytest.param("s = set(a)\nt = [x + 1 for x in s]", id="a list comprehension"),
        pytest.param("s = set(a)\nt = {x: 1 for x in s}", id="a dictionary keeps the order it was made in"),
        pytest.param("s = set(a)\nt = list(s)", id="a list"),
        pytest.param("s = set(a)\nt = [*s]", id="an unpacked list"),
        pytest.param("s = set(a)\nt = dict.fromkeys(s)", id="keys"),
        pytest.param("s = set(a)\nt = ','.join(s)", id="text"),
        pytest.param("s = set(a)\nt = s.pop()", id="whichever comes first"),
        pytest.param("s = set(a)\nt = min(s, key=cost)", id="the first of a tie"),
    ],
)
def test_a_walk_over_a_set_is_found(body):
    found = inspect("services/simulator/run.py", body + "\n")

    assert len(found) == 1
    assert "a walk over a set" in found[0]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("s = set(a)\nfor x in sorted(s): pass", id="sorted"),
        pytest.param("s = set(a)\nt = sorted(x.name for x in s)", id="sorted afterwards"),
        pytest.param("s = set(a)\nt = any(x > 1 for x in s) or 3 in s or len(s)", id="membership"),
        pytest.param("s = set(a)\nt = {x + 1 for x in s}", id="a set from a set"),
        pytest.param("s = set(a)\ns = sorted(s)\nfor x in s: pass", id="a name that became a list"),
        pytest.param("d = {}\nfor x in d: pass\nfor x in d.keys(): pass", id="a dictionary"),
        pytest.param("def f(s: list[int]):\n    for x in s: pass\ns = set()", id="another name of the same spelling"),
        pytest.param("t = [1]\nt.pop()", id="the end of a list"),
    ],
)
def test_a_set_for_membership_is_not_found(body):
    assert inspect("services/simulator/run.py", body + "\n") == []


@pytest.mark.parametrize(
    ("path", "body", "what"),
    [
        pytest.param(CORE, "x = 0.5", "a float in a core", id="a float"),
        pytest.param(CORE, "x = a / b", "true division", id="a quotient"),
        pytest.param(CORE, "x /= 2", "true division", id="a quotient in place"),
        pytest.param(CORE, "x = float(y)", "float()", id="a conversion"),
        pytest.param(CORE, "try: f()\nexcept Exception: pass", "a broad except", id="an error passed over"),
        pytest.param(CORE, "try: f()\nexcept: x = 1", "a broad except", id="any error passed over"),
        pytest.param(POLICY, "try: f()\nexcept (OSError, Exception): x = 1", "a broad except", id="one of several"),
        pytest.param(CORE, "print(1)", "print()", id="output"),
        pytest.param(POLICY, "open('x')", "open()", id="a file"),
        pytest.param(CORE, "x = sorted(y, key=lambda z: id(z))", "id()", id="an address"),
        pytest.param(CORE, "x = hash('a') % 4", "hash()", id="the hash seed"),
    ],
)
def test_what_is_not_pure_is_found(path, body, what):
    found = inspect(path, body + "\n")

    assert len(found) == 1
    assert what in found[0]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(POLICY, "rank = a / b * 0.5", id="a float may rank candidates inside a policy"),
        pytest.param(CORE, "try: f()\nexcept KeyError: pass", id="an expected error"),
        pytest.param(CORE, "try: f()\nexcept Exception as e: raise Bug from e", id="an error that goes on"),
        pytest.param(SHELL, "print(open('x'))", id="a shell has files"),
    ],
)
def test_what_a_room_allows_is_not_found(path, body):
    assert inspect(path, body + "\n") == []


def function_of(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(("path", "lines_max"), [(CORE, 60), (POLICY, 60), (SHELL, 60)])
def test_a_function_has_a_longest_length(path, lines_max):
    assert inspect(path, function_of(lines_max)) == []
    assert inspect(path, function_of(lines_max + 1)) == [
        f"{path}:1: f has {lines_max + 1} lines, here a function has at most {lines_max}"
    ]


def test_a_file_that_becomes_long_is_named():
    short, long = "x = 1\n" * MODULE_LINES, "x = 1\n" * (TEST_LINES + 1)
    files = [(SHELL, short), (SHELL, long), ("tests/a.py", "x = 1\n" * TEST_LINES), ("tests/a.py", long)]
    assert long_files(files) == [f"{SHELL}: 501 lines", "tests/a.py: 501 lines"]


def test_long_files_are_told_and_fail_nothing():
    folders = ("schemas", "largesse", "services", "tests", "benchmarks")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    for text in long_files([(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]):
        warnings.warn(f"long: {text}; cut it where another interface begins, or leave it", stacklevel=1)


def test_the_editor_shows_no_ban_that_the_house_does_not_hold():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]["flake8-tidy-imports"]
    banned = options["banned-api"]

    assert set(banned) >= CLOCK_AND_CHANCE
    for path in ("schemas/jobs.py", "largesse/ids.py", POLICY, CORE):
        assert [name for name in banned if may_import(room_of(path), path, name)] == []
