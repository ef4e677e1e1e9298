"""What somebody meets in the first hour: common mistakes, and whether the answer says how to mend them."""

from contextvars import copy_context
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from largesse.bodies import read_yaml
from schemas.edge.base import milliseconds_meant
from schemas.edge.config import knob_of_text
from schemas.edge.read import Malformed, read_cluster, read_input
from schemas.edge.strict_json import loads
from services.cli.groups import numbers_worded
from services.cli.queues import tree_text
from services.cli.show import in_zone, show_times_in
from services.simulator.workloads import openb
from services.simulator.workloads.files import Damaged, read_bytes, read_lines
from tests.unit.cli_here import largesse

BOM = b"\xef\xbb\xbf"
SMALL = "examples/workloads/small.jsonl", "--cluster", "examples/clusters/small.json"


def test_a_group_lists_its_commands_where_none_is_like_the_one_that_is_named():
    said = largesse("get", "foo", columns=200)
    assert said.code == 2
    assert "No such command 'foo'. Commands: " in said.err
    for command in ("jobs", "job", "queues", "nodes"):
        assert command in said.err

    assert "'jobs'" in largesse("get", "jobz", columns=200).err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("get", "jobs", "--limit", "0"), "'--limit': 0 has to be from 1 to 10000."),
        (("get", "jobs", "--limit", "x"), "'--limit': 'x' is not a whole number."),
        (("replay", "log", "--until", "0"), "'--until': 0 has to be at least 1."),
        (("compare", "--seed", "x"), "'--seed': 'x' is not a whole number."),
    ],
)
def test_a_number_is_refused_in_plain_words(words, reason):
    said = largesse(*words, columns=200)
    assert said.code == 2
    assert reason in said.err


def test_what_is_said_of_other_values_stays():
    assert numbers_worded("'x' is no number") == "'x' is no number"


def test_blanks_between_presets_are_nothing():
    said = largesse("compare", "--presets", "fifo, drf", "--workload", *SMALL, "--json")
    assert said.code == 0, said.err
    assert '"drf"' in said.out


@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [
        ("duration_ms", "30s", "30000 (milliseconds)"),
        ("duration_ms", "250 ms", "250 (milliseconds)"),
        ("wait_ms", "2h", "7200000 (milliseconds)"),
        ("tasks", "30s", None),
        ("duration_ms", "soon", None),
        ("duration_ms", None, None),
    ],
)
def test_a_duration_with_a_unit_is_shown_in_milliseconds(field, value, meant):
    assert milliseconds_meant(field, value) == meant


def test_a_duration_with_a_unit_is_refused_with_what_to_write():
    stage = {"stage": "s", "tasks": 1, "demand": {"cpu": 1}, "duration_ms": "30s"}
    with pytest.raises(Malformed, match=r'is "30s": write 30000 \(milliseconds\)'):
        read_input("jobs", {"job": "j", "stages": [stage]}, "")
    with pytest.raises(Malformed, match=r"round_gap_ms: has to be a whole number: write 2000 \(milliseconds\)"):
        knob_of_text("round_gap_ms=2s")


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    file = tmp_path / "jobs.jsonl"
    file.write_bytes(BOM + b'{"a": 1}\n{"b": 2}\n')
    assert [line for _, line in read_lines(str(file))] == [b'{"a": 1}\n', b'{"b": 2}\n']
    assert read_bytes(str(file)) == b'{"a": 1}\n{"b": 2}\n'

    workload = tmp_path / "small.jsonl"
    workload.write_bytes(BOM + Path(SMALL[0]).read_bytes())
    said = largesse("simulate", "--workload", workload, *SMALL[1:], "--json")
    assert said.code == 0, said.err


def test_openb_says_which_columns_a_table_lacks(tmp_path):
    table = tmp_path / "pods.csv"
    table.write_text("name,cpu_milli,other\n1,2,3\n")
    with pytest.raises(
        Damaged, match=r"pods.csv:1: has to name the columns of the table; missing: memory_mib, num_gpu"
    ):
        list(openb.convert(str(table)))


def test_what_is_borrowed_stays_on_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = tree_text(_queue("", children=[_queue("research/anna"), _queue("research/ben")]))
    assert "borr." in text.splitlines()[0]


def _queue(name: str, children: list[dict[str, object]] | None = None) -> dict[str, object]:
    shares = dict.fromkeys(("guaranteed", "fair", "allocated", "lent", "borrowed"), 0.1234)
    limits: dict[str, object] = {"guaranteed": {}, "max": {}, "running_jobs_max": None, "submitters": None}
    jobs = {"running": 10, "waiting": 100, "parked": 0}
    settings = {"weight": 1, "policy": None, "limits": limits, "resource": "memory", "promised": {}, "breach": None}
    return {"queue": name, **settings, **shares, "jobs": jobs, "children": children or []}


def test_times_in_texts_of_the_gateway_are_in_the_zone_of_tables():
    def shown():
        show_times_in(ZoneInfo("Europe/Berlin"))
        return in_zone("waits for its lease, which begins at 2027-01-15T08:00:00Z")

    assert copy_context().run(shown) == "waits for its lease, which begins at 2027-01-15 09:00:00 CET"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a:\n\tb: 1\n", "at line 2 column 1; a tab stands there: YAML is indented with spaces"),
        ("a:\n  b: 1\n\tc: 2\n", "at line 3 column 1; a tab stands there: YAML is indented with spaces"),
        ("a: @x\n", "is no YAML: found character that cannot start any token at line 1 column 4"),
        ("a: [", "is no YAML: did not find expected node content"),
    ],
)
def test_a_tab_is_named_where_yaml_cannot_be_read_for_it(text, reason):
    with pytest.raises(Malformed) as caught:
        read_yaml(text.encode())
    assert reason in str(caught.value)
    assert ("tab" in str(caught.value)) == ("\t" in text)


@pytest.mark.parametrize("data", [b"", b" \n"])
def test_a_document_without_anything_is_empty_as_json_too(data):
    with pytest.raises(Malformed, match=r"^is empty$"):
        loads(data)


@pytest.mark.parametrize(
    ("topic", "document", "reason"),
    [
        ("config", {"policy": {"preset": "drf"}}, 'policy: unknown field; did you mean "set"?'),
        ("config", {"set": {"foo": 1}}, "set.foo: unknown knob; `largesse config show` and docs/settings.md list them"),
        ("config", {"queues": {"name": "root", "policy": "fiffo"}}, '; is "fiffo"; did you mean "fifo"?'),
        (
            "config",
            {"queues": {"name": "root", "set": {}}},
            'queues.set: unknown field here: it belongs further up, beside "queues"',
        ),
    ],
)
def test_a_config_that_is_refused_says_what_was_meant(topic, document, reason):
    with pytest.raises(Malformed) as caught:
        read_input(topic, document, "")
    assert reason in str(caught.value)


def test_knobs_under_the_name_that_a_config_has_for_them_are_told_that_of_a_cluster_file():
    with pytest.raises(Malformed, match='set: unknown field; did you mean "policy"'):
        read_cluster({"nodes": [{"name": "n", "capacity": {"cpu": 1}}], "set": {"preset": "drf"}})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"demand": {"cpu": Decimal("1e30")}}, "demand.cpu: is too large: the most is 9007199254740991m"),
        ({"demand": {"cpu": "9" * 19 + "k"}}, "demand.cpu: is too large: the most is 9007199254740991m"),
        ({"demand": {"cpu": "0.12345678901"}}, "demand.cpu: has too many digits: at most 18 before the point and 9"),
        ({"gang": "yes"}, 'gang: has to be true or false, is "yes": write true'),
        ({"gang": "Off"}, 'gang: has to be true or false, is "Off": write false'),
        ({"gang": "maybe"}, 'gang: has to be true or false, is "maybe"'),
        ({"labels": ["zone=c"]}, 'labels: has to be an object, is a list: write {"zone": "c"}'),
        ({"labels": ["c"]}, 'labels: has to be an object, is a list: write an object, like {"zone": "a"}'),
        ({"env": ["A=1", "B=x"]}, 'env: has to be an object, is a list: write {"A": "1", "B": "x"}'),
        (
            {"anti_affinity": True},
            'anti_affinity: has to be an object, is true: write an object, like {"required": true}',
        ),
        ({"spread": "zone"}, 'spread: has to be an object, is "zone": write an object, like {"label": "zone"}'),
    ],
)
def test_a_job_that_is_refused_says_what_was_meant(fields, reason):
    stage = {"stage": "s", "tasks": 1, "demand": {"cpu": 1}} | fields
    with pytest.raises(Malformed) as caught:
        read_input("jobs", {"job": "j", "stages": [stage]}, "")
    assert f"stages[0].{reason}" in str(caught.value)
    assert str(caught.value).endswith('"maybe"') == (fields.get("gang") == "maybe")
