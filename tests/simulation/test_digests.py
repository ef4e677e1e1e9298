"""The same inputs give the same digest: under any hash seed, in any process, on any Python that we run on.

Other interpreters come from LARGESSE_PYTHONS (paths, joined as in PATH) or are `python3.x` on the PATH. They need
orjson, pydantic and mypy_extensions: one on the PATH that cannot import them is left out in its own words, one that was
named has to. Compiled cores are those that `make compile` made of these sources.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import get_args

import pytest

from largesse.log.export import ExportWriter
from schemas.presets import Preset
from services.simulator.drawn import drawn_cluster, drawn_jobs
from services.simulator.drawn_reservations import KNOBS, drawn_arrivals
from services.simulator.run import Options, simulate
from tests.cells import drop_caches

ROOT = Path(__file__).parents[2]
COMPILED = ROOT / "build" / "compiled"
SEEDS = (1, 3)
PRESETS = get_args(Preset)
GROUPS = tuple(PRESETS[first::8] for first in range(8))
OTHERS = ("python3.11", "python3.12", "python3.13")


@pytest.fixture
def outcome(computed):
    """What one drawn history comes to under some presets in processes of this Python with hash seed 1."""

    def of(seed, groups=GROUPS):
        found = {}
        for group in groups:
            name = f"digests-{seed}-{GROUPS.index(group)}"
            found |= computed(name, lambda group=group: outcome_by(sys.executable, seed, "1", group))
        return found

    return of


def outcome_by(python, seed, hash_seed, presets=PRESETS, **more):
    command = [python, "-m", "services.simulator", "--once", "--seed", str(seed)]
    command += [f"--preset={preset}" for preset in presets]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1", **more}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def interpreters():
    if named := os.environ.get("LARGESSE_PYTHONS"):
        return named.split(os.pathsep)
    here = f"python3.{sys.version_info.minor}"
    return [name for name in OTHERS if name != here]


def point_of(stderr):
    """The line that says what is wrong: a traceback's last, the first of what a shell or a shim says."""
    lines = stderr.strip().splitlines() or ["it says nothing"]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


@pytest.mark.rotating(len(GROUPS))
@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
@pytest.mark.parametrize("seed", [pytest.param(SEEDS[0], marks=pytest.mark.whole), *SEEDS[1:]])
def test_the_hash_seed_reaches_no_decision(seed, group, outcome):
    found = outcome_by(sys.executable, seed, "2", group)

    assert found == outcome(seed, [group])
    assert found.keys() == {*group}
    assert all(each["jobs"] and each["rounds"] for each in found.values())
    assert len({each["digest"] for each in found.values()}) == len(group)


def test_every_preset_is_in_one_group():
    assert sorted(preset for group in GROUPS for preset in group) == sorted(get_args(Preset))


@pytest.mark.parametrize("python", interpreters())
def test_every_python_decides_alike(python, outcome):
    refuse = pytest.fail if os.environ.get("LARGESSE_PYTHONS") else pytest.skip
    path = shutil.which(python)
    if path is None:
        refuse(f"no {python} on the PATH")
    asked = subprocess.run(
        [path, "-c", "import mypy_extensions, orjson, pydantic"], capture_output=True, text=True, check=False
    )
    if asked.returncode != 0:
        refuse(f"{python}: {point_of(asked.stderr)}; one that imports them can be named in LARGESSE_PYTHONS")
    # Under every preset; more seeds show no more of Python.
    assert outcome_by(path, SEEDS[0], "3") == outcome(SEEDS[0])


def test_a_simulation_imports_only_what_the_other_pythons_are_given():
    """Each of them gets what `.ci/run` names and no more: a simulation that imports more could not run there."""
    kept = re.search(r"^kept='\^\((.+)\)=='$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    code = "import sys; before = set(sys.modules); import services.simulator.__main__; "
    code += "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    asked = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    packages = packages_distributions()
    imported = {package for name in asked.stdout.split() for package in packages.get(name, ())} - {"largesse"}

    assert "orjson" in imported
    assert {package.replace("_", "-") for package in imported} <= set(kept[1].split("|"))


@pytest.fixture(scope="module")
def compiled():
    """The environment of a process that runs on compiled cores."""
    if not (COMPILED / ".ready").is_file():
        pytest.skip("no compiled cores: make compile")
    found = (path.relative_to(COMPILED) for path in COMPILED.glob("*/**/*.py"))
    sources = [path for path in found if "shipped" not in path.parts]  # Those are examples, from another folder.
    if any((COMPILED / path).read_bytes() != (ROOT / path).read_bytes() for path in sources):
        pytest.skip("the compiled cores are of other sources than these: make compile")
    here = {"PYTHONPATH": os.pathsep.join([str(COMPILED), str(ROOT)]), "PYTHONSAFEPATH": "1"}
    where = "import services.leftover.core.state as state; print(state.__file__)"
    asked = subprocess.run(
        [sys.executable, "-c", where], env={**os.environ, **here}, capture_output=True, text=True, check=True
    )
    assert asked.stdout.startswith(str(COMPILED))
    assert asked.stdout.endswith(".so\n")
    return here


def test_compiled_cores_decide_alike(compiled, outcome):
    for seed in SEEDS:
        assert outcome_by(sys.executable, seed, "4", **compiled) == outcome(seed)


COPIES = """
from tests.properties.test_copies import SEEDS, Seeded, played
print([played(Seeded.of(seed)).cell.digest for seed in SEEDS])
"""


def digests_with_copies(hash_seed, **more):
    """Digests of drawn histories in which slow tasks are copied, from a process of their own."""
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONDONTWRITEBYTECODE": "1", **more}
    command = [sys.executable, "-c", COPIES]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_hash_seed_reaches_no_copy():
    assert digests_with_copies("1", PYTHONPATH=str(ROOT)) == digests_with_copies("2", PYTHONPATH=str(ROOT))


def test_compiled_cores_copy_the_same_tasks(compiled):
    assert digests_with_copies("4", **compiled) == digests_with_copies("1", PYTHONPATH=str(ROOT))


def test_a_whole_cell_runs_on_compiled_cores(compiled, tmp_path):
    """The demonstration: gateway, sequencer, agents and the check of the log, as an installed wheel has them."""
    words = [sys.executable, "-m", "services.cli.main"]
    env = {**os.environ, **compiled}
    said = subprocess.run([*words, "--version"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "cores compiled" in said.stdout, said.stderr
    done = subprocess.run([*words, "demo"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    assert "the log verified" in done.stdout


def test_compiled_cores_answer_what_ifs_alike(compiled, tmp_path):
    """What the commands over a log add to the cores is interpreted, and stands on compiled classes."""
    with ExportWriter(tmp_path / "log.gz") as log:
        simulate(drawn_jobs(53), drawn_cluster(53), Options({"preset": "carbyne"}, listener=log))
    words = [sys.executable, "-m", "services.cli.main", "replay", "log.gz", "--what-if", "--preset", "drf", "--json"]
    answers = []
    for env in ({"PYTHONPATH": str(ROOT)}, compiled):
        env = {**os.environ, **env}
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout)

    assert answers[0] == answers[1]
    assert json.loads(answers[0])


def test_compiled_cores_keep_what_the_others_do_and_come_back_from_snapshots(compiled):
    """Drawn histories with a snapshot before and after every answer, and the log that old rules left."""
    start = "import sys, pytest, services.leftover.core.state as state; assert state.__file__.endswith('.so'); "
    command = [sys.executable, "-c", f"{start}sys.exit(pytest.main(sys.argv[1:]))", "-q", "-p", "no:cacheprovider"]
    command += ["tests/properties/test_cores.py", "tests/simulation/test_golden.py", "tests/unit/test_snapshots.py"]
    env = {**os.environ, **compiled}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-3_000:]


@pytest.mark.rotating(6)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_run_without_any_cache_decides_alike(preset, outcome):
    def forget(cell):
        drop_caches([cell.admission, cell.fairness, *cell.altruism, cell.leftover, cell.estimator, cell.planner])

    seed, (group,) = SEEDS[1], [group for group in GROUPS if preset in group]
    knobs = {"preset": preset, "seed": seed, **(KNOBS if preset == "rayon" else {})}
    forgetful = simulate(drawn_arrivals(seed, preset), drawn_cluster(seed), Options(knobs, before_round=forget))
    assert forgetful["digest"] == outcome(seed, [group])[preset]["digest"]


def test_the_seed_is_part_of_the_digest_and_other_processes_are_not():
    first, again, other = (
        simulate(drawn_jobs(53), drawn_cluster(53), Options({"seed": seed}))["digest"] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
