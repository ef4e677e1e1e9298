"""What in a job spec is warned of, and how several faults are reported."""

import pytest

from schemas.edge.jobs import (
    CORES_MEANT_MAX,
    WARNINGS_MAX,
)
from schemas.edge.read import Malformed, read_input, warnings_of
from schemas.edge.validated import UNKNOWN_NAMED_MAX
from tests.unit.test_edge_jobs import job, stage


def test_very_many_bare_cores_are_most_likely_meant_in_thousandths():
    document = job(
        stage("a", demand={"cpu": 500, "memory": "16Mi"}), stage("b", demand={"cpu": 1}, estimate_demand={"gpu": 257})
    )

    assert warnings_of(document) == [
        'stages[0].demand.cpu: 500 is 500 cores; for 500 thousandths write "500m"',
        'stages[1].estimate_demand.gpu: 257 is 257 GPUs; for 257 thousandths write "257m"',
    ]


def test_what_is_written_as_meant_warns_of_nothing():
    meant = {"cpu": CORES_MEANT_MAX, "gpu": "1000", "memory": 1 << 20}

    assert warnings_of(job(stage(demand=meant), stage("b", demand={"gpu": 0}))) == []


def refused(document):
    with pytest.raises(Malformed) as fault:
        read_input("jobs", document, "")
    return fault.value


def test_all_unknown_fields_are_named_at_once_the_first_of_the_document_first():
    document = {"colour": 1, "stages": [stage("a", taks=2), stage("b", comand=["x"], tint=1)], "quue": "x"}

    fault = refused(document)

    assert fault.field == "colour"
    assert fault.reason.startswith("unknown field; known here: after_jobs, altruism_permille, from_stage, hold, job, ")
    assert fault.reason.endswith(
        '; unknown too: stages[0].taks (did you mean "tasks"?), stages[1].comand (did you mean "command"?), '
        'stages[1].tint, quue (did you mean "queue"?)'
    )


@pytest.mark.parametrize(
    ("document", "field", "where"),
    [
        ({"stages": [stage("a", revocable="never")]}, "stages[0].revocable", 'further up, beside "stages"'),
        ({"stages": [stage("a"), stage("b", queue="q")]}, "stages[1].queue", 'further up, beside "stages"'),
        ({"retries": 3, "stages": [stage("a")]}, "retries", 'in "stages"'),
        ({"stages": [stage("a", max_skew=2)]}, "stages[0].max_skew", 'in "spread"'),
    ],
)
def test_a_field_that_is_known_elsewhere_is_sent_there(document, field, where):
    fault = refused(document)

    assert (fault.field, fault.reason) == (field, f"unknown field here: it belongs {where}")


def test_a_field_that_stands_where_it_belongs_is_only_unknown_elsewhere():
    fault = refused({"queue": "a", "stages": [stage("a", queue="b")]})

    assert (fault.field, fault.reason.partition(";")[0]) == ("stages[0].queue", "unknown field")


@pytest.mark.parametrize(("others", "end"), [(UNKNOWN_NAMED_MAX, ", x8"), (UNKNOWN_NAMED_MAX + 2, ", x8 and 2 more")])
def test_of_many_unknown_fields_some_are_named(others, end):
    fault = refused({f"x{i}": 1 for i in range(others + 1)})

    assert fault.field == "x0"
    assert fault.reason.endswith(end)


@pytest.mark.slow
def test_very_many_unknown_fields_take_no_time():
    assert refused({f"x{i}": 1 for i in range(50_000)}).reason.endswith("and 49991 more")


@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("echo hi", '["echo", "hi"]'),
        ("/bin/true", '["/bin/true"]'),
        ("./run.sh  --n=3 a,b", '["./run.sh", "--n=3", "a,b"]'),
        ("echo hi | wc", '["sh", "-c", "echo hi | wc"]'),
        ("echo $HOME", '["sh", "-c", "echo $HOME"]'),
        ("echo 'a b'", """["sh", "-c", "echo 'a b'"]"""),
        ('echo "a b"', '["sh", "-c", "..."]'),
        ("x" * 41, '["sh", "-c", "..."]'),
        ("", '["sh", "-c", "..."]'),
    ],
)
def test_a_command_line_that_is_a_text_is_shown_as_a_list(command, form):
    fault = refused(job(stage(command=command)))

    assert fault.field == "stages[0].command"
    assert fault.reason.startswith("has to be a list, is ")
    assert fault.reason.endswith(f": write {form}")


def test_another_text_that_should_be_a_list_is_shown_as_one_too():
    assert (
        str(refused(job(stage("a"), stage("b", after="a")))) == 'stages[1].after: has to be a list, is "a": write ["a"]'
    )


@pytest.mark.parametrize(
    ("resource", "amount", "warning"),
    [
        ("memory", "100m", "is less than 1 MiB (without a suffix it is bytes, and m is a thousandth); for 100 MiB "),
        ("disk", "100m", 'for 100 MiB write "100Mi"'),
        ("memory", "0.5k", 'for 1 MiB write "1Mi"'),
        ("memory", "65535m", 'for 65535 MiB write "65535Mi"'),
        ("memory", "65536m", 'for 1 MiB write "1Mi"'),
        ("memory", "1048575", 'for 1 MiB write "1Mi"'),
        ("memory", "1023Ki", 'for 1023 MiB write "1023Mi"'),
        ("memory", "1048576", ""),
        ("memory", "1Mi", ""),
        ("memory", "0", ""),
        ("network", "1k", ""),
        ("memory", 0, ""),
    ],
)
def test_memory_in_another_unit_than_most_likely_meant_is_warned_of(resource, amount, warning):
    warnings = warnings_of(job(stage(demand={"cpu": "1", resource: amount})))

    assert len(warnings) == bool(warning)
    assert not warning or (warnings[0].startswith(f"stages[0].demand.{resource}: ") and warning in warnings[0])


def test_a_cluster_file_is_warned_of_too():
    document = {"nodes": [{"name": "n", "capacity": {"cpu": "4", "gpu": 800}}]}

    assert warnings_of(document) == ['nodes[0].capacity.gpu: 800 is 800 GPUs; for 800 thousandths write "800m"']


def test_warnings_end_somewhere():
    assert len(warnings_of(job(*[stage(f"s{i}", demand={"cpu": 500}) for i in range(100)]))) == WARNINGS_MAX


@pytest.mark.parametrize(("resource", "units"), [("cpu", "cores"), ("gpu", "GPUs")])
def test_cores_with_a_suffix_for_bytes_are_not_meant(resource, units):
    assert warnings_of(job(stage(demand={resource: "100Mi"}))) == [
        f'stages[0].demand.{resource}: "100Mi" has a suffix for bytes; write {units}, like "2" or "500m"'
    ]
