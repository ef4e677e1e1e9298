"""A cell in one process is killed, paused, loses its guardians or its machine: no input and no work of it is lost."""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
from time import sleep

import pytest

from largesse.bus.file.bus import FileBus
from largesse.bus.port import Outgoing
from largesse.failpoints import POINTS, VARIABLE
from tests.conftest import ROOT
from tests.live import campaign_checks as checks
from tests.live.campaign import KILLS, Outcome, run_seed, verdict
from tests.live.campaign_cell import GUARD_S, Cell, cut_power
from tests.live.campaign_jobs import marked, read_proofs, shell
from tests.live.campaign_plan import FAILPOINTS, MOMENT, drawn_plan, seeds_of
from tests.unit.cli_process import COMMAND, largesse

ORDINARY, HARSH = 4, 3
"""Seeds: one with the examples, one in which guardians die too and power goes."""
PLANS = {
    ORDINARY: [
        "admission:after_append:5",
        "fairness:before_publish:1",
        MOMENT,
        "leftover:after_decide:1",
        "agent:before_task_start:1",
    ],
    HARSH: [
        "agent:after_publish:1",
        "altruism-0:before_decide:1",
        "admission:before_close:1",
        MOMENT,
        "gateway:after_consume:20",
    ],
}
"""Only points that no life can do without: an agent registers, a job is submitted, a round opens, all answer it, it
closes and a task starts; the log goes on as long as the life does. The whole campaign goes through the others."""
REACH_S = 240
"""A loaded machine misses no point."""


@pytest.mark.rotating(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [ORDINARY, HARSH])
def test_a_cell_that_is_killed_again_and_again_loses_nothing(seed, daily, tmp_path):
    plan = PLANS[seed]
    outcome = run_seed(seed, tmp_path, plan, jobs=5 if daily else 10, reach_s=REACH_S)

    assert outcome.wrong == [], "\n".join([*outcome.wrong, f"repeat: {outcome.again}"])
    assert outcome.hit == [end.rpartition(":")[0] for end in plan if end != MOMENT]
    assert (outcome.missed, outcome.moments) == ([], 1)
    assert outcome.figures["attempts succeeded"] > 0


def test_without_a_number_of_seeds_a_campaign_arms_every_failpoint():
    for kills in (1, 5, KILLS, 30):
        armed = [end.rpartition(":")[0] for seed in range(seeds_of(kills)) for end in drawn_plan(seed, kills)]
        assert {*FAILPOINTS} <= {*armed} <= {*FAILPOINTS, ""}


def test_the_failpoints_of_a_campaign_are_at_every_place_but_the_solver():
    """Of a campaign no solver runs beside the planner, no router, nothing packs the journal, archives or trims it,
    nothing keeps checkpoints: those are killed by test_kafka_solver.py, test_router.py, test_file_bus_packed.py,
    test_archive.py, test_file_bus_trim.py and test_archive_keep.py."""
    places = ("solve", "send", "pack", "segment", "manifest", "trim", "remove", "states", "note")
    elsewhere = {f"{when}_{place}" for when in ("before", "after") for place in places}
    assert {point.partition(":")[2] for point in FAILPOINTS} == {*POINTS} - elsewhere
    assert len({*FAILPOINTS}) == len(FAILPOINTS)


@pytest.mark.parametrize("gently", [True, False])
def test_a_power_cut_takes_only_what_was_not_on_disk(tmp_path, gently):
    async def story():
        bus = FileBus(tmp_path)
        await bus.writer().send([Outgoing("jobs", 0, b"{}")])
        writer, journal = bus.writer(), tmp_path / "journal-000000000001.jsonl"
        for number in range(1, 11):
            await writer.send([Outgoing("grants", 0, b"{}")], durable=False)
            while journal.read_bytes().count(b'"topic":"grants"') < number:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        shutil.copytree(tmp_path, tmp_path / "now")
        await bus.close()
        return tmp_path if gently else tmp_path / "now"

    directory = asyncio.run(story())
    gone = cut_power(directory, random.Random(1))
    assert gone == 0 if gently else 0 < gone <= 10
    bus = FileBus(directory)
    assert [asyncio.run(bus.bounds(topic, 0)) for topic in ("jobs", "grants")] == [(0, 1), (0, 10 - gone)]
    asyncio.run(bus.close())


@pytest.mark.parametrize(
    ("second", "code", "printed"),
    [
        pytest.param({"hit": ["agent:before_publish"]}, 0, "2 of 64 failpoints hit", id="hit in a later seed"),
        pytest.param({"missed": ["agent:before_publish"]}, 1, "NEVER HIT: agent:before_publish", id="missed again"),
        pytest.param({"hit": ["agent:before_publish"], "wrong": ["lost"]}, 1, "failed: [2]", id="a wrong end"),
    ],
)
def test_a_failpoint_that_was_armed_and_never_hit_fails_a_campaign(second, code, printed, capsys):
    first = Outcome(1, "", hit=["agent:after_consume"], missed=["agent:before_publish"])

    assert verdict([first, Outcome(2, "", **second)], 1) == code
    assert printed in capsys.readouterr().out


LEASE_MS = 5_000


@pytest.fixture
def cell(tmp_path):
    cell = Cell(tmp_path, node_lease_ms=LEASE_MS)
    yield cell
    cell.kill_all()


def submit(cell, name, *stages):
    spec = {"job": name, "stages": [{"tasks": 1, "demand": {"cpu": "100m"}, **stage} for stage in stages]}
    assert cell.ask("POST", "/v1/jobs", spec)[0] == 201


def waits_for(path, cell):
    """A stage whose task goes on until there is a file."""
    return marked({"stage": "wait", **shell(f"until [ -e {path} ]; do sleep 0.05; done")}, cell.proof)


def begin(cell, *jobs):
    """A first life, in which these jobs run; each is (name, stage)."""
    cell.start()
    cell.until("/readyz", bool)
    for name, stage in jobs:
        submit(cell, name, stage)
        cell.until(f"/v1/jobs/{name}", lambda said: said["started_ms"] is not None)


def ended(cell, name):
    """The state in which a job ends."""
    return cell.until(f"/v1/jobs/{name}", lambda said: said["ended_ms"] is not None)["state"]


def assert_all_is_well(cell, *, guardians_killed):
    """Ends the cell; what the journal tells is right, and nothing runs any more."""
    assert (cell.end(), cell.processes()) == (0, [])
    journal = checks.read(cell.data / "bus")
    story = checks.tell(journal)
    proofs, twice = read_proofs(cell.proof)
    wrong = [*checks.check_log(journal), *checks.check_inputs(journal), *checks.check_rounds(journal), *story.wrong]
    assert wrong + checks.check_proofs(story, proofs, twice, guardians_killed=guardians_killed) == []
    assert largesse("replay", cell.data, "--verify").code == 0
    return {(attempt[0], attempt[3]): life.end for attempt, life in story.lives.items()}


def test_a_task_whose_guardian_is_killed_is_lost_and_asked_again(cell, tmp_path):
    begin(cell, ("patient", waits_for(tmp_path / "go", cell)))
    (guardian,) = cell.guardians()
    os.kill(guardian, signal.SIGKILL)
    cell.until("/v1/jobs/patient", lambda said: said["failures"])
    (tmp_path / "go").touch()

    assert ended(cell, "patient") == "succeeded"
    ends = assert_all_is_well(cell, guardians_killed=True)
    assert ends == {("patient", 1): "lost", ("patient", 2): "succeeded"}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("boot", ["the same", "another"])
def test_after_the_machine_went_down_tasks_are_lost_and_jobs_still_end(cell, tmp_path, boot):
    timed = {"stage": "hold", "duration_ms": 4_000}
    begin(cell, ("timed", timed), ("patient", waits_for(tmp_path / "go", cell)))
    cell.kill_all()
    if boot == "another":
        for path in cell.data.rglob("claim.json"):
            path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "of yesterday"}))
    (tmp_path / "go").touch()
    cell.start()

    assert (ended(cell, "patient"), ended(cell, "timed")) == ("succeeded", "succeeded")
    ends = assert_all_is_well(cell, guardians_killed=True)
    assert ends == {("patient", 1): "lost", ("patient", 2): "succeeded", ("timed", 1): "succeeded"}


@pytest.mark.whole
def test_a_cell_that_was_asleep_blames_no_node(cell, tmp_path):
    begin(cell, ("patient", waits_for(tmp_path / "go", cell)))
    os.kill(cell.process.pid, signal.SIGSTOP)
    sleep(LEASE_MS / 1_000 + 1)
    os.kill(cell.process.pid, signal.SIGCONT)
    (tmp_path / "go").touch()

    assert ended(cell, "patient") == "succeeded"
    ends = assert_all_is_well(cell, guardians_killed=False)
    assert ends == {("patient", 1): "succeeded"}


@pytest.mark.whole
def test_a_service_that_fails_ends_the_cell_by_name_and_the_next_start_goes_on(cell, tmp_path):
    begin(cell, ("patient", waits_for(tmp_path / "go", cell)))
    cell.kill(0)
    cell.start("leftover:before_decide:1:raise")
    (tmp_path / "go").touch()
    assert cell.process.wait(GUARD_S) == 3
    assert "leftover: Failpoint: leftover:before_decide" in cell.said()
    cell.start()

    assert ended(cell, "patient") == "succeeded"
    ends = assert_all_is_well(cell, guardians_killed=False)
    assert ends == {("patient", 1): "succeeded"}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        pytest.param("LARGESSE_SNAPSHOT_ROUNDS", "often", "has to be a whole number", id="a setting"),
        pytest.param(VARIABLE, "fairness:nowhere:1", "no point 'nowhere'", id="a failpoint"),
    ],
)
def test_a_variable_that_is_wrong_is_named(tmp_path, name, value, problem):
    words = [*COMMAND, "up", "--data", str(tmp_path), "--http", "0"]
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env={**os.environ, name: value}, timeout=GUARD_S, check=False
    )

    assert done.returncode != 0
    assert f"{name}={value}: " in done.stderr
    assert problem in done.stderr
