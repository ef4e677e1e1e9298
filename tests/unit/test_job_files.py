"""What a job file may say in short: parameters, files of variables, stages by name."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.edge.base import Malformed
from schemas.edge.read import read_input
from services.cli.documents import read_job
from services.cli.ending import Wrong
from services.cli.job_files import expanded, variables_in, words_of
from services.cli.trying import trial_rows, with_spec
from tests.unit.cli_process import ROOT

STAGE = {"stage": "s", "tasks": 1, "demand": {"cpu": 1}, "command": ["true"]}


def full(said=(), parameters=None, folder=None, **stage):
    document = {"stages": [STAGE | stage]}
    if parameters is not None:
        document["parameters"] = parameters
    return expanded(document, said, folder)["stages"][0]


def refused(*args, **named):
    with pytest.raises(Malformed) as caught:
        full(*args, **named)
    return str(caught.value)


# ---------------------------------------------------------------- parameters
ROWS = {"rows": {"type": "int", "default": 100}, "input": {}}


def test_placeholders_stand_for_values_and_a_whole_one_keeps_its_type():
    stage = full(
        ["input=a b.csv"], ROWS, tasks="${rows}", command=["count", "${input}", "--rows=${rows}", "$${HOME}", "$HOME"]
    )
    assert stage["tasks"] == 100
    assert stage["command"] == ["count", "a b.csv", "--rows=100", "${HOME}", "$HOME"]
    assert full(["rows=7", "input="], ROWS, tasks="${rows}")["tasks"] == 7


@pytest.mark.parametrize(
    ("said", "parameters", "reason"),
    [
        ([], ROWS, "parameters.input: has no value: give --set input=VALUE, or a default"),
        (["input=x", "rows=many"], ROWS, '--set rows: has to be a whole number, is "many"'),
        (["input=x", "row=1"], ROWS, '--set: there is no parameter "row"; did you mean "rows"?'),
        (["input=x", "zzz=1"], ROWS, '--set: there is no parameter "zzz"; there are: rows, input'),
        (["input"], ROWS, '--set: has to be NAME=VALUE, is "input"'),
        (["rows=1"], None, "parameters: is missing, so there is nothing that --set rows could set"),
        ([], {"a b": {}}, 'parameters["a b"]: has to be letters, digits'),
        ([], {"a": 5}, "parameters.a: has to be an object"),
        ([], {"a": {"type": "float"}}, "parameters.a.type: has to be one of"),
        ([], {"a": {"type": "int", "default": "1"}}, 'parameters.a.default: has to be a whole number, is "1"'),
        ([], {"a": {"type": "int", "default": True}}, "parameters.a.default: has to be a whole number, is true"),
        ([], {"a": {"choices": ["x", "y"], "default": "z"}}, 'parameters.a.default: has to be one of x, y, is "z"'),
        (["a=z"], {"a": {"choices": ["x", "y"]}}, '--set a: has to be one of x, y, is "z"'),
        (["a=yes"], {"a": {"type": "bool"}}, "--set a: has to be true or false"),
        ([], {"a": {"typ": "int"}}, 'parameters.a.typ: unknown field; did you mean "type"?'),
        ([], [1], "parameters: has to be an object"),
    ],
)
def test_what_is_wrong_with_parameters(said, parameters, reason):
    assert refused(said, parameters).startswith(reason)


def test_an_unknown_placeholder_is_named_with_its_place():
    assert refused(["input=x"], ROWS, command=["echo", "${inptu}"]) == (
        'stages[0].command[1]: ${inptu} is not among the parameters: did you mean "input"? For a shell\'s own write '
        "$${inptu}"
    )


def test_a_file_without_parameters_keeps_its_dollars():
    document = {"stages": [STAGE | {"command": ["sh", "-c", "echo ${HOME} $${x}"]}]}
    assert expanded(document, (), None) is document


@given(st.text(), st.integers(-(10**6), 10**6), st.booleans())
def test_values_are_never_looked_into(text, number, flag):
    parameters = {"a": {}, "b": {"type": "int", "default": number}, "c": {"type": "bool", "default": flag}}
    stage = full([f"a={text}"], parameters, command=["${a}", "x${a}y${b}${c}", "${c}"])
    assert stage["command"] == [text, f"x{text}y{number}{'true' if flag else 'false'}", flag]


def test_numbers_are_exact():
    assert full(["n=0.10"], {"n": {"type": "number"}}, command=["${n}", "-${n}"])["command"] == [
        Decimal("0.10"),
        "-0.10",
    ]
    assert words_of(Decimal("1E-7")) == "0.0000001"


# ---------------------------------------------------------------- variables and stages by name
def test_variables_of_files_come_behind_what_the_stage_says(tmp_path):
    (tmp_path / "a.env").write_text('# all\n\nA=1\nB=two words \nC="quoted" $A\n')
    (tmp_path / "b.env").write_text("B=2\n")
    stage = full(env_file=["a.env", "b.env"], env={"A": "own"}, folder=tmp_path)
    assert stage["env"] == {"A": "own", "B": "2", "C": '"quoted" $A'}
    assert "env_file" not in stage


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"A=1\nsecret words\n", "x.env line 2 is no NAME=VALUE"), (b"1A=2", "line 1"), (b"A=\xff", "x.env is not UTF-8")],
)
def test_what_is_wrong_with_a_file_of_variables(tmp_path, data, reason):
    (tmp_path / "x.env").write_bytes(data)
    with pytest.raises(Malformed, match=reason) as caught:
        variables_in(tmp_path / "x.env", "stages[0].env_file")
    assert "secret words" not in str(caught.value)


def test_stages_may_stand_under_their_names():
    body = {key: value for key, value in STAGE.items() if key != "stage"}
    document = expanded({"stages": {"a": body, "b": body | {"needs": ["a"]}}}, (), None)
    assert [(stage["stage"], stage.get("needs")) for stage in document["stages"]] == [("a", None), ("b", ["a"])]
    with pytest.raises(Malformed, match=r'stages\.a\.stage: is "b", but stands under the name "a"'):
        expanded({"stages": {"a": body | {"stage": "b"}}}, (), None)
    with pytest.raises(Malformed, match=r"stages\.a: has to be a stage, is 5"):
        expanded({"stages": {"a": 5}}, (), None)


# ---------------------------------------------------------------- as submit reads it
FILE = """
job: count-${day}
parameters:
  day: {type: string}
  rows: {type: int, default: 3}
stages:
  load: {tasks: 1, demand: {cpu: 1}, command: [load, "${day}"]}
  count: {needs: [load], array: "1-9:2", demand: {cpu: 1}, command: [count], env_file: vars.env}
"""


def written(tmp_path, text=FILE, **more):
    (tmp_path / "job.yaml").write_text(text)
    return read_job(str(tmp_path / "job.yaml"), lambda: "ann", **more)


def test_submit_sends_what_the_file_stands_for(tmp_path):
    (tmp_path / "vars.env").write_text("MODE=fast\n")
    sent = written(tmp_path, said=["day=2026-11-30"], instead={"queue": "ml"})
    document = json.loads(sent.data)
    assert (document["job"], document["queue"], sent.in_full) == ("count-2026-11-30", "ml", True)
    assert document["stages"][1]["env"] == {"MODE": "fast"}
    assert with_spec({"job": "j"}, sent.data) == {"job": "j", "spec": document}
    assert trial_rows({"job": "j", "state": "repeated"}).startswith("job\tj")


def test_the_example_is_a_job_of_eleven_tasks():
    sent = read_job(str(ROOT / "examples" / "sweep.yaml"), lambda: "ann", said=["epochs=5"])
    spec = read_input("jobs", sent.document, "")
    assert (spec.job, [stage.tasks for stage in spec.stages]) == ("sweep-5", [6, 5])
    assert spec.stages[0].command[2] == 'echo "epochs 5 lr $LR seed $SEED"'


def test_a_plain_file_is_sent_as_it_is(tmp_path):
    text = "stages: [{stage: s, tasks: 1, demand: {cpu: 1}, command: [sh, -c, 'echo ${HOME}']}]\n"
    sent = written(tmp_path, text)
    assert (sent.data, sent.in_full) == (text.encode(), False)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ((), "parameters.day: has no value: give --set day=VALUE"),
        (("day=x",), "env_file: .*vars.env cannot be read: No such file"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path, said, reason):
    with pytest.raises(Wrong, match=reason) as caught:
        written(tmp_path, said=said)
    assert str(tmp_path) in str(caught.value)
