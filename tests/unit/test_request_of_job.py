"""`largesse reserve submit --job`: the request for what a job needs, by its graph and estimates."""

import json
from itertools import pairwise

import pytest
from hypothesis import strategies as st

from schemas.jobs import JobSpec, Stage
from services.planner.planning.read_rdl import DEPTH_MAX
from services.planner.rdl.document import read_document
from services.planner.rdl.of_job import request_text
from services.planner.rdl.times import clock
from tests.strategies import for_all
from tests.unit.cli_here import largesse

NOW_S = 1_000_000


def stage(name, *after, tasks=1, estimate_ms=60_000, gang=False, demand=None):
    demand = demand or {"cpu": 1_000}
    return Stage(stage=name, tasks=tasks, demand=demand, after=list(after), estimate_ms=estimate_ms, gang=gang)


def request(*stages, margin=0):
    text = request_text(JobSpec("j", "q", list(stages)), "+0s", "+2h", margin)
    return read_document(text, clock(now_s=NOW_S))


def widest(rdl):
    """The atom of a stage that has the most units."""
    return rdl["of"][-1] if rdl["op"] == "any" else rdl


def shape(rdl):
    """Stages by how many units they have at most, operators by name."""
    return widest(rdl)["h"] if rdl["op"] in ("atom", "any") else (rdl["op"], *map(shape, rdl["of"]))


def test_a_task_is_an_atom_with_all_that_it_needs():
    demand = {"cpu": 500, "memory": 1_500, "gpu": 250}
    rdl = request(stage("map", estimate_ms=90_500, demand=demand))

    assert rdl == {
        "op": "window",
        "s": NOW_S,
        "e": NOW_S + 7_200,
        "of": {
            "op": "atom",
            "b": {"cpu": "500m", "memory": "1500Mi", "gpu": "250m"},
            "g": 1,
            "h": 1,
            "l": 91,
            "w": 91,
        },
    }


def test_several_tasks_run_all_at_once_or_one_after_another_on_fewer_units():
    choice = request(stage("map", tasks=6, estimate_ms=90_500))["of"]

    assert choice["op"] == "any"
    assert [(atom["g"], atom["h"], atom["l"], atom["w"]) for atom in choice["of"]] == [
        (1, 1, 6 * 91, 6 * 91),
        (2, 2, 3 * 91, 6 * 91),
        (3, 3, 2 * 91, 6 * 91),
        (6, 6, 91, 6 * 91),
    ]


@for_all(st.integers(2, 5_000), st.integers(1, 900), st.none() | st.integers(1, 6_000), st.integers(1, 6_000))
def test_whichever_atom_is_chosen_has_room_for_whole_tasks_and_no_unit_too_many(tasks, lasts_s, running_max, there):
    """And one of them lasts at most a quarter longer than the tasks have to on as many units as there are."""
    work = stage("work", tasks=tasks, estimate_ms=1_000 * lasts_s)
    work.running_max = running_max
    choice = request(work)["of"]
    atoms = choice["of"] if choice["op"] == "any" else [choice]

    assert len({atom["h"] for atom in atoms}) == len(atoms)
    lengths = [atom["l"] for atom in atoms]
    assert (lengths[0], lengths[-1]) == (tasks * lasts_s, -(-tasks // work.width) * lasts_s)
    assert all(longer > shorter for longer, shorter in pairwise(lengths))
    least_s = -(-tasks // min(there, work.width)) * lasts_s
    assert min(atom["l"] for atom in atoms if atom["h"] <= there) <= least_s * 5 / 4
    for atom in atoms:
        each = atom["l"] // lasts_s
        assert (atom["g"], atom["l"], atom["w"]) == (atom["h"], each * lasts_s, atom["h"] * atom["l"])
        assert (atom["h"] - 1) * each < tasks <= atom["h"] * each
        assert atom["h"] * (each - 1) < tasks


CROWDED = request(*[stage(f"s{at}", tasks=3, estimate_ms=7_000) for at in range(600)])["of"]["of"][0]
"""The atom of a stage of a job that has too many stages for a choice of atoms each."""


@for_all(st.lists(st.integers(7, 42), min_size=6, max_size=6))
def test_with_too_many_stages_for_a_choice_any_leases_of_the_work_that_is_asked_for_hold_all_tasks(drawn_s):
    assert (CROWDED["op"], CROWDED["g"], CROWDED["h"], CROWDED["l"]) == ("atom", 1, 3, 7)
    leases_s = []
    for lease_s in drawn_s:
        left_s = CROWDED["w"] - sum(leases_s)
        leases_s.append(lease_s if left_s - lease_s >= CROWDED["l"] else left_s)
        if leases_s[-1] == left_s:
            break
    assert sum(leases_s) == CROWDED["w"]
    assert sum(lease_s // 7 for lease_s in leases_s) >= 3


def test_a_gang_runs_once_and_as_a_whole():
    atom = request(stage("train", tasks=4, gang=True))["of"]
    assert (atom["g"], atom["h"], atom["l"], atom["w"]) == (4, 4, 60, 240)


def test_a_margin_lengthens_every_task():
    atom = request(stage("train", tasks=4, gang=True), margin=15)["of"]
    assert (atom["l"], atom["w"]) == (69, 276)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        pytest.param([("a",), ("b", "a")], ("order", 1, 2), id="a chain"),
        pytest.param([("a",), ("b",)], ("all", 1, 2), id="side by side"),
        pytest.param(
            [("a",), ("b", "a"), ("c", "a"), ("d", "b", "c"), ("e",)],
            ("all", ("order", 1, ("all", 2, 3), 4), 5),
            id="a diamond beside a stage",
        ),
        pytest.param([("b", "a"), ("a",)], ("order", 2, 1), id="named in another order"),
        pytest.param(
            [("a",), ("b", "a"), ("c", "a", "b")], ("order", 1, 2, 3), id="a dependency that follows from others"
        ),
        pytest.param(
            [("a",), ("b",), ("c", "a"), ("d", "a", "b")],
            ("order", ("all", 1, 2), ("all", 3, 4)),
            id="not series-parallel: by level",
        ),
    ],
)
def test_the_graph_becomes_order_and_all(stages, expected):
    made = [stage(name, *after, tasks=at) for at, (name, *after) in enumerate(stages, 1)]
    assert shape(request(*made)["of"]) == expected


@st.composite
def graphs(draw):
    """By stage, the earlier ones that it waits for."""
    many = draw(st.integers(1, 12))
    return [draw(st.sets(st.integers(0, at - 1), max_size=3)) if at else set() for at in range(many)]


def relations(rdl):
    """Of pairs of atoms, by units: what joins them, and the atoms below."""
    if rdl["op"] in ("atom", "any"):
        return {}, [widest(rdl)["h"]]
    found, below = {}, []
    for each in rdl["of"]:
        inside, atoms = relations(each)
        found |= inside
        found |= {(first, second): rdl["op"] for first in below for second in atoms}
        below += atoms
    return found, below


@for_all(graphs())
def test_whatever_the_graph_no_stage_is_planned_before_one_that_it_waits_for(graph):
    stages = [stage(f"s{at}", *[f"s{k}" for k in sorted(after)], tasks=at + 1) for at, after in enumerate(graph)]
    joined, atoms = relations(request(*stages)["of"])

    assert sorted(atoms) == list(range(1, len(graph) + 1))
    for at, after in enumerate(graph):
        for before in after:
            assert joined.get((before + 1, at + 1)) == "order"


@pytest.mark.parametrize("many", [2 * DEPTH_MAX, 1_000])
def test_a_graph_nested_deeper_than_a_request_may_be_goes_level_by_level(many):
    stages = [stage("s0")]
    for at in range(1, many):
        # Each pair waits for all before it on one side only: every bracket is inside the one before.
        stages.append(stage(f"s{at}", *([f"s{k}" for k in range(at)] if at % 2 else []), tasks=at + 1))
    rdl = request(*stages)["of"]
    joined, _ = relations(rdl)

    assert all(joined[k + 1, at + 1] == "order" for at in range(1, many, 2) for k in range(at))


def test_a_thousand_stages_are_read_in_no_time():
    rdl = request(*[stage(f"s{at}", *([f"s{at - 1}"] if at else [])) for at in range(1_000)])["of"]
    assert shape(rdl) == ("order", *[1] * 1_000)


# ---------------------------------------------------------------- the command
def spec(tmp_path, **more):
    one = {"stage": "work", "tasks": 2, "demand": {"cpu": 1}, "command": ["true"], "estimate_ms": 30_000}
    file = tmp_path / "job.json"
    file.write_text(
        json.dumps({"job": "j", "user": "ann", "reservation": "r", "stages": [one | more.pop("one", {})]} | more)
    )
    return file


def submit(*words):
    return largesse("reserve", "submit", "r", *words, columns=100, LARGESSE_USER="ann")


def test_print_shows_the_request_and_sends_nothing(tmp_path):
    said = submit("--job", spec(tmp_path), "--by", "+1h", "--print")
    assert (said.code, said.err) == (0, "")
    atoms = 'atom(b="1 cpu", g=1, h=1, l=1m, w=1m),\n        atom(b="1 cpu", g=2, h=2, l=30s, w=1m)'
    assert said.out == f"window(+0s, +1h,\n    any(  # work\n        {atoms}))\n"


def test_it_says_what_the_job_needs_to_run_under_it(tmp_path):
    said = submit("--job", spec(tmp_path, reservation="other"), "--by", "+1h", "--print")
    assert said.code == 0
    assert "runs under it only with `reservation: r`" in said.err


def test_the_owner_is_whom_user_names(tmp_path):
    file = spec(tmp_path, user="bob")
    assert submit("--job", file, "--by", "+1h", "--user", "bob", "--print").code == 0
    refused = submit("--job", file, "--by", "+1h", "--print")
    assert (refused.code, "write --user bob" in refused.err) == (2, True)
    nobody = submit("--job", file, "--by", "+1h", "--user", "a\tb", "--print")
    assert (nobody.code, nobody.err.startswith("largesse: --user: has to be 1 to")) == (2, True)


@pytest.mark.parametrize(
    ("words", "more", "expected"),
    [
        (["--by", "+1h"], {"one": {"estimate_ms": None}}, "job.json: stages[0].estimate_ms: is missing"),
        (["--by", "+1h"], {"user": "bob"}, 'job.json: user: is "bob"'),
        ([], {}, "--by: is missing"),
        (["--by", "soon"], {}, '--from, --by: "soon" is no time'),
        (["--by", "+1h", "--from", "+2h"], {}, "--from, --by: the window ends"),
        (["request.rdl", "--by", "+1h"], {}, "--job: FILE is given too"),
        (["--by", "+1h", "--margin", "-1"], {}, "--margin"),
    ],
)
def test_what_is_wrong_names_the_argument_or_the_field(tmp_path, words, more, expected):
    said = submit("--job", spec(tmp_path, **more), *words, "--print")
    assert said.code == 2
    assert expected in said.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "FILE: is missing"),
        (["-", "--by", "+1h"], "--by: needs --job"),
        (["-", "--margin", "5"], "--margin: needs --job"),
    ],
)
def test_without_a_job_the_file_says_everything(words, expected):
    said = submit(*words)
    assert said.code == 2
    assert expected in said.err
