"""Job specs: what they come to in base units, where their limits stand, and what is said of a slip.

That every kind of slip is refused at its field is in properties/test_bad_specs.py; here stand the words and the edges.
"""

import json
from decimal import Decimal

import pytest

from schemas.edge.base import AUTHOR_MAX, DURATION_MS_MAX, LABELS_MAX, NAME_MAX, TASKS_MAX
from schemas.edge.jobs import (
    COMMAND_MAX,
    COMMAND_WORD_MAX,
    CWD_MAX,
    ENV_MAX,
    PRIORITY_MAX,
    QUEUE_DEPTH_MAX,
    RETRIES_MAX,
    SEGMENT_MAX,
    STAGES_MAX,
)
from schemas.edge.read import Malformed, read_input, read_workload_line
from schemas.edge.short_forms import ENV_VALUE_MAX
from schemas.edge.strict_json import loads
from schemas.jobs import AntiAffinity, JobCancelled, JobSpec, Spread, Stage
from schemas.policy import JOB_TASKS_MAX
from schemas.quantities import QUANTITY_MAX


def stage(name="s", **fields):
    """A stage of one short task, unless said otherwise."""
    work = {} if {"command", "durations_ms"} & fields.keys() else {"duration_ms": 10}
    count = {} if "durations_ms" in fields else {"tasks": 1}
    return {"stage": name, "demand": {"cpu": "1"}, **work, **count, **fields}


def job(*stages, **fields):
    """A job spec of these stages."""
    return {"stages": list(stages) or [stage()], **fields}


def read(document):
    return read_input("jobs", document, "ann")


def only_stage(**fields):
    return read(job(stage(**fields))).stages[0]


def refusal(document):
    with pytest.raises(Malformed) as refused:
        read(document)
    return refused.value


# What a spec comes to


def test_a_spec_with_nothing_left_out_comes_to_base_units():
    spec = read(
        job(
            stage("scan", tasks=20, demand={"memory": "2Gi", "cpu": "1"}, duration_ms=30_000),
            stage(
                "join",
                after=["scan"],
                durations_ms=[900, 1200],
                demand={"cpu": "1.0005", "memory": "4G"},
                gang=True,
                retries=2,
                timeout_ms=5_000,
                labels={"zone": "a", "arch": "arm"},
                prefer={"disk": "ssd"},
            ),
            job="q21-7",
            queue="ads/prod",
            submit_ms=7,
            priority=-3,
            user="ann",
            reservation="nightly",
        )
    )

    scan = Stage("scan", 20, {"cpu": 1000, "memory": 2048}, estimate_ms=30_000, durations_ms=[30_000])
    join = Stage(
        "join",
        2,
        {"cpu": 1001, "memory": 3815},
        after=["scan"],
        estimate_ms=1050,
        durations_ms=[900, 1200],
        gang=True,
        retries=2,
        timeout_ms=5_000,
        labels={"arch": "arm", "zone": "a"},
        prefer={"disk": "ssd"},
    )
    assert spec == JobSpec("q21-7", "ads/prod", [scan, join], -3, "ann", "nightly")
    assert list(spec.stages[1].labels) == ["arch", "zone"]
    assert list(spec.stages[0].demand) == ["cpu", "memory"]


def test_rules_for_nodes_are_read_with_their_defaults():
    made = only_stage(anti_affinity={}, spread={"label": "zone"}, prefer={"disk": "ssd"}, locality_wait_ms=5_000)

    assert made.anti_affinity == AntiAffinity(group="", required=True)
    assert made.spread == Spread("zone", max_skew=1, required=True)
    assert made.locality_wait_ms == 5_000

    made = only_stage(
        anti_affinity={"group": "db", "required": False}, spread={"label": "zone", "max_skew": 3, "required": False}
    )
    assert made.anti_affinity == AntiAffinity("db", required=False)
    assert made.spread == Spread("zone", 3, required=False)
    assert made.locality_wait_ms is None


def test_a_spec_with_everything_left_out_gets_its_defaults():
    assert read(job()) == JobSpec("", "default", [Stage("s", 1, {"cpu": 1000}, estimate_ms=10, durations_ms=[10])])


def test_null_means_left_out():
    nothing = {"tasks": 1, "durations_ms": None, "command": None, "estimate_ms": None, "timeout_ms": None, "cwd": None}

    assert read(job(stage(duration_ms=10) | nothing, job=None, queue=None, reservation=None)) == read(job())


def test_a_real_task_is_known_by_its_command():
    made = only_stage(
        command=["sh", "-c", "a\nb"], env={"Z": "", "A": "x=y"}, cwd="/srv", timeout_ms=60_000, duration_ms=None
    )

    assert made.command == ["sh", "-c", "a\nb"]
    assert list(made.env) == ["A", "Z"]
    assert (made.cwd, made.timeout_ms, made.durations_ms) == ("/srv", 60_000, [])


@pytest.mark.parametrize(
    ("fields", "estimate_ms"),
    [
        pytest.param({"durations_ms": [1, 2]}, 2, id="the mean, rounded up"),
        pytest.param({"duration_ms": 70}, 70, id="the one duration"),
        pytest.param({"duration_ms": 0}, 0, id="tasks that take no time"),
        pytest.param({"duration_ms": 70, "estimate_ms": 5}, 5, id="what the submitter says"),
        pytest.param({"duration_ms": 70, "estimate_ms": 0}, 0, id="even nothing"),
        pytest.param({"command": ["x"], "timeout_ms": 9}, 9, id="the time-out of a real task"),
        pytest.param({"command": ["x"]}, 0, id="unknown"),
    ],
)
def test_what_the_scheduler_is_told_of_a_duration(fields, estimate_ms):
    assert only_stage(**fields).estimate_ms == estimate_ms


def test_like_durations_are_kept_as_one():
    assert only_stage(durations_ms=[5, 5, 5]).durations_ms == [5]
    assert only_stage(durations_ms=[5, 5, 5]).tasks == 3
    assert only_stage(durations_ms=[5, 5, 6]).durations_ms == [5, 5, 6]


def test_an_estimated_demand_hides_the_true_one():
    parsed = only_stage(demand={"cpu": 2, "memory": "100Mi"}, estimate_demand={"memory": "50Mi", "cpu": 1, "gpu": 1})

    assert parsed.demand == {"cpu": 1000, "gpu": 1000, "memory": 50}
    assert parsed.true_demand == {"cpu": 2000, "memory": 100}
    assert only_stage().true_demand == {}


def test_amounts_of_nothing_are_dropped():
    assert only_stage(demand={"cpu": "1", "gpu": 0, "memory": "0Gi"}).demand == {"cpu": 1000}


def test_a_name_may_hold_anything_but_slashes_and_control_characters():
    name = 'Bericht "über" alles\\名前'

    assert read(job(job=name)).job == name


def test_a_cancellation():
    assert read({"cancel": "q21-7"}) == JobCancelled("q21-7", "ann")


def test_an_author_is_cut_to_what_a_record_takes():
    assert read_input("jobs", {"cancel": "a"}, "x" * 1_000) == JobCancelled("a", "x" * AUTHOR_MAX)
    assert read_input("jobs", {"cancel": "a"}, "a\nb") == JobCancelled("a", "ab")
    assert read_input("jobs", {"cancel": "a"}, "") == JobCancelled("a", "unknown")


def test_a_workload_line_says_when_it_comes():
    submit_ms, spec = read_workload_line(job(job="a", submit_ms=12))

    assert (submit_ms, spec) == (12, read(job(job="a")))


def test_a_workload_line_runs_nothing_real():
    with pytest.raises(Malformed) as refused:
        read_workload_line(job(stage(command=["x"]), job="a", submit_ms=0))

    assert refused.value.field == "stages[0].command"


# Limits


@pytest.mark.parametrize(
    ("most", "more", "field"),
    [
        pytest.param(job(job="x" * NAME_MAX), job(job="x" * (NAME_MAX + 1)), "job", id="NAME_MAX"),
        pytest.param(job(user="x" * NAME_MAX), job(user="x" * (NAME_MAX + 1)), "user", id="NAME_MAX of a user"),
        pytest.param(job(priority=PRIORITY_MAX), job(priority=PRIORITY_MAX + 1), "priority", id="PRIORITY_MAX"),
        pytest.param(job(priority=-PRIORITY_MAX), job(priority=-PRIORITY_MAX - 1), "priority", id="-PRIORITY_MAX"),
        pytest.param(job(submit_ms=QUANTITY_MAX), job(submit_ms=QUANTITY_MAX + 1), "submit_ms", id="QUANTITY_MAX"),
        pytest.param(
            job(queue="q" * SEGMENT_MAX), job(queue="a/" + "q" * (SEGMENT_MAX + 1)), "queue", id="SEGMENT_MAX"
        ),
        pytest.param(
            job(queue="/".join("q" * QUEUE_DEPTH_MAX)),
            job(queue="/".join("q" * (QUEUE_DEPTH_MAX + 1))),
            "queue",
            id="QUEUE_DEPTH_MAX",
        ),
        pytest.param(
            job(*[stage(f"s{i}") for i in range(STAGES_MAX)]),
            job(*[stage(f"s{i}") for i in range(STAGES_MAX + 1)]),
            "stages",
            id="STAGES_MAX",
        ),
        pytest.param(job(stage(tasks=TASKS_MAX)), job(stage(tasks=TASKS_MAX + 1)), "stages[0].tasks", id="TASKS_MAX"),
        pytest.param(
            job(stage(durations_ms=[1] * TASKS_MAX)),
            job(stage(durations_ms=[1] * (TASKS_MAX + 1))),
            "stages[0].durations_ms",
            id="TASKS_MAX durations",
        ),
        pytest.param(
            job(*[stage(f"s{i}", tasks=TASKS_MAX) for i in range(JOB_TASKS_MAX // TASKS_MAX)]),
            job(*[stage(f"s{i}", tasks=TASKS_MAX) for i in range(JOB_TASKS_MAX // TASKS_MAX)], stage()),
            "stages",
            id="JOB_TASKS_MAX",
        ),
        pytest.param(
            job(stage(duration_ms=DURATION_MS_MAX)),
            job(stage(duration_ms=DURATION_MS_MAX + 1)),
            "stages[0].duration_ms",
            id="DURATION_MS_MAX",
        ),
        pytest.param(
            job(stage(retries=RETRIES_MAX)), job(stage(retries=RETRIES_MAX + 1)), "stages[0].retries", id="RETRIES_MAX"
        ),
        pytest.param(
            job(stage(spread={"label": "zone", "max_skew": TASKS_MAX})),
            job(stage(spread={"label": "zone", "max_skew": TASKS_MAX + 1})),
            "stages[0].spread.max_skew",
            id="a skew of TASKS_MAX",
        ),
        pytest.param(
            job(stage(labels={f"l{i}": "" for i in range(LABELS_MAX)})),
            job(stage(labels={f"l{i}": "" for i in range(LABELS_MAX + 1)})),
            "stages[0].labels",
            id="LABELS_MAX",
        ),
        pytest.param(
            job(stage(command=["x"] * COMMAND_MAX)),
            job(stage(command=["x"] * (COMMAND_MAX + 1))),
            "stages[0].command",
            id="COMMAND_MAX",
        ),
        pytest.param(
            job(stage(command=["x" * COMMAND_WORD_MAX])),
            job(stage(command=["x" * (COMMAND_WORD_MAX + 1)])),
            "stages[0].command[0]",
            id="COMMAND_WORD_MAX",
        ),
        pytest.param(
            job(stage(env={f"E{i}": "" for i in range(ENV_MAX)})),
            job(stage(env={f"E{i}": "" for i in range(ENV_MAX + 1)})),
            "stages[0].env",
            id="ENV_MAX",
        ),
        pytest.param(
            job(stage(env={"E": "x" * ENV_VALUE_MAX})),
            job(stage(env={"E": "x" * (ENV_VALUE_MAX + 1)})),
            "stages[0].env.E",
            id="ENV_VALUE_MAX",
        ),
        pytest.param(job(stage(cwd="x" * CWD_MAX)), job(stage(cwd="x" * (CWD_MAX + 1))), "stages[0].cwd", id="CWD_MAX"),
    ],
)
def test_a_limit_is_taken_and_one_more_is_not(most, more, field):
    read(most)

    assert refusal(more).field == field


def test_the_largest_stage_of_a_real_trace_is_a_line_of_a_workload():
    line = json.dumps(job(stage(durations_ms=[1_000 + i % 7 for i in range(175_991)]), job="a", submit_ms=0))

    _, spec = read_workload_line(loads(line.encode(), size_max=16 << 20))

    assert spec.stages[0].tasks == 175_991


def test_a_graph_as_deep_as_there_may_be_stages_is_checked():
    chain = [stage(f"s{i}", after=[f"s{i + 1}"]) for i in range(STAGES_MAX - 1)]

    assert len(read(job(*chain, stage(f"s{STAGES_MAX - 1}"))).stages) == STAGES_MAX
    problem = refusal(job(*chain, stage(f"s{STAGES_MAX - 1}", after=["s0"])))
    assert problem.field.endswith(".after")
    assert problem.reason == "stages wait for each other: s0 -> s1 -> s2 -> s3 -> s4 -> s5 -> ... -> s0"


# What is said


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param(job(stage(taks=1)), 'stages[0].taks: unknown field; did you mean "tasks"?', id="near a field"),
        pytest.param(
            job(stage(locality_wait_ms=1)),
            'stages[0].locality_wait_ms: needs "prefer": the labels of the nodes that a task waits for',
            id="a wait for nothing",
        ),
        pytest.param(
            job(stage(spread={"label": "zone", "max_skew": 0})),
            "stages[0].spread.max_skew: has to be at least 1, is 0",
            id="a skew that no task keeps",
        ),
        pytest.param({"stagess": []}, 'stagess: unknown field; did you mean "stages"?', id="missing, only misspelt"),
        pytest.param(
            job(stage(tasks="3")), 'stages[0].tasks: has to be a whole number, is "3": write 3', id="text for a number"
        ),
        pytest.param(
            job(stage(tasks="3.5")),
            'stages[0].tasks: has to be a whole number, is "3.5"',
            id="text that is no whole number",
        ),
        pytest.param(
            job(stage(command=["sleep", 1])),
            'stages[0].command[1]: has to be a string, is 1: write "1"',
            id="a number among words",
        ),
        pytest.param(
            job(stage(env={"V": Decimal("1.50")})),
            'stages[0].env.V: has to be a string, is 1.50: write "1.50"',
            id="a version",
        ),
        pytest.param(
            job(stage(env={"V": True})),
            'stages[0].env.V: has to be a string, is true: write "true"',
            id="a boolean for a text",
        ),
        pytest.param(job(stage(env={"V": None})), "stages[0].env.V: has to be a string, is null", id="no text"),
        pytest.param(
            job(stage(gang="true")),
            'stages[0].gang: has to be true or false, is "true": write true',
            id="text for a boolean",
        ),
        pytest.param(job(stage(gang=1)), "stages[0].gang: has to be true or false, is 1", id="a number for a boolean"),
        pytest.param(
            job(stage(demand={"memory": 512})),
            'stages[0].demand.memory: 512 is 512 bytes: write "512Mi" for 512 MiB, "512Gi" for 512 GiB',
            id="a few bytes",
        ),
        pytest.param(
            job(stage(demand={"cpu": None})),
            'stages[0].demand.cpu: has to be a quantity like "500m", 2 or "2Gi", is null',
            id="null for a quantity",
        ),
        pytest.param(
            job(stage(demand={})),
            'stages[0].demand: a task has to ask for something: name at least one resource, like {"cpu": "1"}',
            id="nothing asked for",
        ),
        pytest.param(
            job(stage("a", after=["b"]), stage("b", after=["c"]), stage("c", after=["b"])),
            "stages[1].after: stages wait for each other: b -> c -> b",
            id="a cycle",
        ),
        pytest.param(
            job(stage("a", after=["a"])),
            "stages[0].after: stages wait for each other: a -> a",
            id="a stage after itself",
        ),
        pytest.param(
            job(stage("scan"), stage("join", after=["scn"])),
            'stages[1].after[0]: there is no stage "scn"; did you mean "scan"?',
            id="an unknown parent",
        ),
        pytest.param(
            job(stage("a"), stage("a")), 'stages[1].stage: "a" is the name of stages[0] already', id="a name taken"
        ),
        pytest.param(
            job(stage(command=["x"], duration_ms=1)),
            'stages[0].duration_ms: "command" is given too: use only one of them',
            id="two things to do",
        ),
        pytest.param(
            job(stage(durations_ms=[1], tasks=3)),
            'stages[0].tasks: is 3, but durations_ms has 1 duration: leave it out, or say "duration_ms"',
            id="counts that disagree",
        ),
        pytest.param(
            job(queue="root/ads/prod"), 'queue: leave "root" out: write "ads/prod"', id="a queue's path with root"
        ),
        pytest.param(
            job(stage(env={"LARGESSE_JOB": "x"})),
            "stages[0].env.LARGESSE_JOB: is set by the agent: choose another name",
            id="what an agent says",
        ),
        pytest.param([], "has to be an object, is a list", id="no document"),
        pytest.param({"cancel": 5}, 'cancel: has to be a string, is 5: write "5"', id="a cancelled number"),
        pytest.param(
            {"cancel": "a", "stages": []},
            "stages: unknown field; known here: admitted, cancel, if_unstarted, moved_to",
            id="a cancellation with more",
        ),
    ],
)
def test_a_refusal_names_the_field_and_the_fix(document, problem):
    assert str(refusal(document)) == problem
