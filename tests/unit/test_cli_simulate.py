import gzip
import json
import re
import subprocess
import sys
from typing import get_args

import pytest

from schemas.presets import Preset
from services.cli import documents
from services.cli.documents import read_cluster_of
from services.cli.ending import Wrong
from services.cli.simulating import REJECTED_SHOWN_MAX
from tests.unit import cli_process
from tests.unit.cli_here import largesse
from tests.unit.cli_process import CLUSTER, ROOT, WORKLOAD

SMALL = ("--workload", WORKLOAD, "--cluster", CLUSTER)
STAGE = {"stage": "s", "tasks": 2, "duration_ms": 5, "demand": {"cpu": "1"}}
JOB = {"job": "a", "submit_ms": 0, "stages": [STAGE]}


def a_job(**fields):
    return json.dumps(JOB | fields) + "\n"


def test_json_is_one_document_with_every_field_of_the_contract():
    said = largesse("simulate", *SMALL, "--json")

    assert (said.code, said.err) == (0, "")
    assert set(said.json) >= {
        *("preset", "version", "jobs", "tasks", "rejected", "makespan_ms", "jct_ms", "waiting_ms", "jain"),
        *("utilisation", "rounds", "placements", "wall_s", "placements_per_s", "digest", "per_job", "seed"),
    }
    assert said.json["seed"] == 0


@pytest.mark.slow
def test_the_hash_seed_changes_no_digest():
    digests = [cli_process.largesse("simulate", *SMALL, "--json", PYTHONHASHSEED=seed).json["digest"] for seed in "12"]

    assert digests[0] == digests[1]


def test_the_summary_fits_sixty_columns():
    said = largesse("simulate", *SMALL)

    assert said.code == 0
    assert "makespan" in said.out
    assert max(map(len, said.out.splitlines())) <= 60


def test_a_workload_comes_from_standard_input_too():
    said = largesse("simulate", "--workload", "-", "--cluster", CLUSTER, "--json", stdin=a_job())

    assert said.json["tasks"] == 2


def test_a_job_that_the_cluster_cannot_run_is_listed_and_the_run_goes_on():
    huge = a_job(job="huge", stages=[STAGE | {"demand": {"cpu": "4000"}}])
    lost = a_job(job="lost", queue="nowhere")
    said = largesse("simulate", "--workload", "-", "--cluster", CLUSTER, "--json", stdin=huge + lost + a_job())

    assert said.code == 0
    assert said.json["rejected"] == [
        {"job": "huge", "reason": "exceeds_capacity"},
        {"job": "lost", "reason": "unknown_queue"},
    ]
    assert [job["job"] for job in said.json["per_job"]] == ["a"]


def test_a_person_reads_why_a_job_was_refused():
    huge = a_job(job="huge", stages=[STAGE | {"demand": {"cpu": "4000"}}])
    said = largesse("simulate", "--workload", "-", "--cluster", CLUSTER, stdin=huge + a_job())

    assert "\n1 job refused:\n" in said.out
    refusal = " ".join(said.out.partition("refused:\n")[2].split())
    assert refusal.startswith("huge exceeds_capacity: stages[0].demand: one task asks for cpu 4000; the largest node")
    assert max(map(len, said.out.splitlines())) <= 60


def test_of_many_refused_jobs_the_first_are_told():
    lost = "".join(a_job(job=f"lost-{i}", queue="nowhere") for i in range(REJECTED_SHOWN_MAX + 2))
    said = largesse("simulate", "--workload", "-", "--cluster", CLUSTER, stdin=lost, columns=200)

    _, _, refusals = said.out.partition(f"{REJECTED_SHOWN_MAX + 2} jobs refused:\n")
    lines = refusals.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == [f"lost-{i}" for i in range(REJECTED_SHOWN_MAX)]
    assert lines[0].split(maxsplit=1)[1].startswith('unknown_queue: queue: "nowhere" is not in the tree')
    assert lines[-1] == "and 2 more, all in --json"


def test_the_summary_begins_with_the_preset_and_does_not_look_like_an_error():
    assert largesse("simulate", *SMALL, "--preset", "largesse").out.startswith("preset largesse: 20 jobs, ")


def test_the_summary_has_what_planned_jobs_donated_and_received():
    rows = {
        line.partition("  ")[0]: line for line in largesse("simulate", *SMALL, "--preset", "carbyne").out.splitlines()
    }

    assert re.fullmatch(r"donated +cpu [1-9][0-9.]* %  gpu [1-9][0-9.]* %  memory [1-9][0-9.]* %", rows["donated"])
    assert "received" in rows
    assert max(map(len, rows.values())) <= 60
    assert "donated" not in largesse("simulate", *SMALL, "--preset", "drf").out


def test_compare_says_why_jobs_were_refused():
    lost = "".join(a_job(job=f"lost-{i}", queue="nowhere") for i in range(12))
    words = ("compare", "--presets", "drf,fifo", "--workload", "-", "--cluster", CLUSTER)
    said = largesse(*words, stdin=lost + a_job())

    lines = [line.split() for line in said.out.splitlines()]
    assert lines[-2] == ["rejected", "jobs", "first", "job", "under"]
    assert lines[-1] == ["unknown_queue", "12", "lost-0", "all", "presets"]
    assert "first job" not in largesse(*words, stdin=a_job()).out


@pytest.mark.parametrize("command", [("simulate",), ("compare", "--presets", "drf,fifo")])
def test_where_nothing_was_admitted_there_are_no_figures(command):
    asked = (*command, "--workload", "-", "--cluster", CLUSTER)
    said = largesse(*asked, stdin=a_job(queue="nowhere"))

    assert said.code == 1
    assert "unknown_queue" in said.out
    assert "makespan" not in said.out
    assert "makespan_ms" in largesse(*asked, "--json", stdin=a_job(queue="nowhere")).out


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param('{"job": "b"', "-:2: is no JSON", id="half a line"),
        pytest.param(a_job(job="b", submit_ms=-1), "-:2: submit_ms: has to be at least 0", id="a number out of range"),
        pytest.param(a_job(), "-:2: job: is the name of the job in line 1", id="a name used twice"),
        pytest.param(
            a_job(job="b", stagse=[]), '-:2: stagse: unknown field; did you mean "stages"?', id="a slip of the pen"
        ),
    ],
)
def test_an_invalid_line_ends_with_its_place_and_field(line, problem):
    said = largesse("simulate", "--workload", "-", "--cluster", CLUSTER, "--json", stdin=a_job() + line)

    assert (said.code, said.out) == (2, "")
    assert problem in said.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(["--preset", "best"], "largesse: --preset: has to be one of fifo, sjf, srtf", id="a preset"),
        pytest.param(["--set", "round_gap=5"], 'did you mean "round_gap_ms"?', id="a knob"),
        pytest.param(["--set", "round_gap_ms=-5"], "round_gap_ms: has to be from 0", id="a knob's range"),
        pytest.param(["--set", "round_gap_ms"], 'write "name=value"', id="a knob without a value"),
        pytest.param(["--set", "reserve_ratio_permille_min=600"], "set both", id="knobs that contradict each other"),
        pytest.param(["--set", "preset=drf", "--preset", "drf"], "preset is given twice", id="a knob twice"),
        pytest.param(["--seed", "x"], "--seed", id="a seed"),
        pytest.param(["--seed", "-1"], "largesse: --seed: has to be from 0", id="a seed below 0"),
        pytest.param(["--schedule", "no/such/folder/x"], "--schedule: no/such/folder/x", id="an output"),
        pytest.param(["--workload", "no-such-file"], "no-such-file: No such file", id="a file"),
        pytest.param(["--cluster", WORKLOAD], f"{WORKLOAD}: is no JSON: Extra data", id="another file's format"),
        pytest.param(["--cluster", "-", "--workload", "-"], "--cluster: standard input", id="one input for two"),
        pytest.param(["--jsno"], "--jsno", id="an option"),
    ],
)
def test_wrong_usage_names_the_option(words, problem):
    said = largesse("simulate", *SMALL, *words)

    assert (said.code, said.out) == (2, "")
    assert problem in said.err
    assert "Traceback" not in said.err


CLUSTER_YAML = """
nodes:
  - {name: n, count: 3, capacity: {cpu: "4", memory: 8Gi}}
queues:
  name: root
  children: [{name: ads, weight: 2.5}, {name: ml, weight: 1}]
policy: {preset: drf}
"""
CLUSTER_JSON = {
    "nodes": [{"name": "n", "count": 3, "capacity": {"cpu": "4", "memory": "8Gi"}}],
    "queues": {"name": "root", "children": [{"name": "ads", "weight": 2.5}, {"name": "ml", "weight": 1}]},
    "policy": {"preset": "drf"},
}


@pytest.mark.parametrize("name", ["c.yaml", "c.yml", "cluster", "c.yaml.gz"])
def test_a_cluster_in_yaml_is_the_same_as_in_json(tmp_path, name):
    text = CLUSTER_YAML.encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    (tmp_path / "c.json").write_text(json.dumps(CLUSTER_JSON))
    ours, theirs = (read_cluster_of(str(tmp_path / each)) for each in (name, "c.json"))

    assert ours == theirs


def test_simulate_and_compare_take_a_cluster_in_yaml(tmp_path):
    (tmp_path / "c.yaml").write_text(CLUSTER_YAML)
    one = largesse("simulate", "--workload", "-", "--cluster", tmp_path / "c.yaml", "--json", stdin=a_job())
    more = largesse(
        *("compare", "--presets", "drf,fifo", "--workload", "-", "--cluster", tmp_path / "c.yaml", "--json"),
        stdin=a_job(),
    )

    assert (one.json["preset"], one.json["tasks"]) == ("drf", 2)
    assert more.json["presets"]["drf"]["digest"] == one.json["digest"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param("count: 3", "count: 3, count: 4", "nodes[0].count: is given twice", id="a key twice"),
        pytest.param('cpu: "4"', "disk: 512", "nodes[0].capacity.disk: 512 is 512 bytes", id="a few bytes"),
        pytest.param("count: 3", "count: 3.0", "nodes[0].count: has to be a whole number", id="a float for a number"),
        pytest.param("{name: n,", "&a {name: n,", "line 3: anchors are not taken", id="an anchor"),
        pytest.param("preset: drf", "preset: dfr", "policy.preset: has to be one of", id="a knob"),
        pytest.param("children", "childern", 'queues.childern: unknown field; did you mean "children"?', id="a slip"),
        pytest.param("policy:", "---\npolicy:", "a second document begins", id="two documents"),
        pytest.param("policy: {", "policy: [{", "is no YAML", id="half a document"),
    ],
)
def test_a_cluster_in_yaml_is_read_as_strictly(tmp_path, old, new, problem):
    (tmp_path / "c.yaml").write_text(CLUSTER_YAML.replace(old, new))

    with pytest.raises(Wrong) as refused:
        read_cluster_of(str(tmp_path / "c.yaml"))

    assert str(refused.value).startswith(f"{tmp_path}/c.yaml: ")
    assert problem in str(refused.value)


def test_a_cluster_in_yaml_has_a_limit(tmp_path, monkeypatch):
    size = len(CLUSTER_YAML)
    (tmp_path / "c.yaml").write_text(CLUSTER_YAML)
    monkeypatch.setattr(documents, "CLUSTER_YAML_MAX", size)
    read_cluster_of(str(tmp_path / "c.yaml"))

    monkeypatch.setattr(documents, "CLUSTER_YAML_MAX", size - 1)
    with pytest.raises(Wrong, match=f"is too large: at most {size - 1} bytes, has {size}"):
        read_cluster_of(str(tmp_path / "c.yaml"))


def test_very_many_bare_cores_are_warned_of_on_stderr():
    bare = a_job(stages=[STAGE | {"demand": {"cpu": 500}}])
    said = largesse("simulate", "--workload", "-", "--cluster", CLUSTER, "--json", stdin=bare)

    assert said.code == 1  # No node has so many.
    assert '-:1: stages[0].demand.cpu: 500 is 500 cores; for 500 thousandths write "500m"' in said.err


def test_the_schedule_has_a_line_for_every_attempt(tmp_path):
    said = largesse("simulate", *SMALL, "--schedule", tmp_path / "s.jsonl", "--json")
    lines = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    attempts = [line for line in lines if "held" not in line]

    assert len(attempts) == said.json["placements"]
    assert set(attempts[0]) == {"job", "stage", "index", "attempt", "node", "start_ms", "end_ms", "outcome", "why"}


def test_compare_gives_each_preset_what_simulate_gives_it():
    said = largesse("compare", "--presets", "fifo,hdrf", *SMALL, "--json")

    assert list(said.json["presets"]) == ["fifo", "hdrf"]
    for preset, result in said.json["presets"].items():
        assert result["digest"] == largesse("simulate", *SMALL, "--preset", preset, "--json").json["digest"]


@pytest.mark.parametrize("words", [["simulate", "--preset", "carbyne"], ["compare", "--presets", "drf,carbyne-dag"]])
def test_a_preset_that_plans_all_jobs_together_is_refused_where_a_queue_orders_its_jobs(tmp_path, words):
    queues = {"name": "root", "children": [{"name": "ads", "policy": "fifo"}]}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"nodes": [{"name": "n", "capacity": {"cpu": "4"}}], "queues": queues}))

    said = largesse(words[0], "--workload", WORKLOAD, "--cluster", str(file), *words[1:])

    assert (said.code, said.out) == (2, "")
    assert '--cluster: queues: queue "ads" has the policy fifo, which does not count' in said.err


def test_four_presets_fit_sixty_columns():
    said = largesse("compare", "--presets", "fifo,drf,hdrf,largesse", *SMALL)

    assert max(map(len, said.out.splitlines())) <= 60
    assert said.out.splitlines()[2].split() == ["fifo", "drf", "hdrf", "largesse"]


@pytest.mark.rotating(3)
@pytest.mark.slow
@pytest.mark.parametrize(("columns", "blocks"), [(60, 4), (80, 3), (200, 1)])
def test_all_presets_are_shown_in_blocks_that_fit_and_nothing_is_torn(columns, blocks):
    presets = get_args(Preset)
    assert len(presets) >= 8
    said = largesse("compare", "--presets", ",".join(presets), *SMALL, columns=columns)
    results = largesse("compare", "--presets", ",".join(presets), *SMALL, "--json").json["presets"]

    _, *drawn = said.out.strip().split("\n\n")
    assert max(map(len, said.out.splitlines())) <= columns
    assert len(drawn) == blocks
    heads = [block.splitlines()[0].split() for block in drawn]
    assert [head for each in heads for head in each] == list(presets)
    for each, block in zip(heads, drawn, strict=True):
        cells = next(line.split("  ") for line in block.splitlines() if line.startswith("makespan, s"))
        numbers = [cell.strip() for cell in cells[1:] if cell]
        assert numbers == [f"{results[preset]['makespan_ms'] / 1_000:,.1f}" for preset in each]


def test_compare_writes_a_page(tmp_path):
    said = largesse("compare", "--presets", "fifo,hdrf", *SMALL, "--json", "--report", tmp_path / "new")

    assert said.code == 0
    assert list(said.json) == ["presets"]
    assert "</html>" in (tmp_path / "new" / "index.html").read_text()


def test_compare_says_that_a_page_stands_in_place_of_another(tmp_path):
    words = "compare", "--presets", "fifo", *SMALL, "--report", tmp_path
    page = tmp_path / "index.html"

    assert largesse(*words).err == f"report in {page}\n"
    assert largesse(*words).err == f"report in {page}, replacing an earlier one\n"


def test_compare_says_under_which_presets_a_max_does_not_hold(tmp_path):
    """Such a preset looks faster than those that keep to it."""
    workload, cluster = tmp_path / "w.jsonl", tmp_path / "c.json"
    workload.write_text("".join(a_job(job=name, queue=name) for name in "abc"))
    queues = [{"name": "a", "max": {"cpu": 2}}, {"name": "b", "max": {"slots": 2}}, {"name": "c"}]
    nodes = [{"name": "n", "capacity": {"cpu": 4, "slots": 4}}]
    cluster.write_text(json.dumps({"nodes": nodes, "queues": {"name": "root", "children": queues}}))
    words = ("compare", "--workload", workload, "--cluster", cluster, "--report", tmp_path, "--presets")

    assert 'fifo: the max of queue "a", queue "b" does not hold' in largesse(*words, "fifo,hdrf").err
    assert "does not hold under this preset; it only refuses what is larger." in (tmp_path / "index.html").read_text()
    assert "does not hold" not in largesse(*words, "drf,hdrf").err


@pytest.mark.parametrize(
    ("presets", "problem"), [("drf,drf", "one twice"), ("drf,", "has to be one of"), ("x", "--preset")]
)
def test_compare_refuses_presets_that_are_none(presets, problem):
    said = largesse("compare", "--presets", presets, *SMALL)

    assert (said.code, said.out) == (2, "")
    assert problem in said.err


SWF = "; a comment\n" + "1 0 -1 10 4 -1 -1 4 20 -1 1 3 1 -1 1 -1 -1 -1\n"


def test_an_import_is_a_workload(tmp_path):
    (tmp_path / "log.swf").write_text(SWF)
    said = largesse("import", "swf", tmp_path / "log.swf", "--no-gang", "--compress", "1/2")

    assert said.code == 0
    assert largesse("simulate", "--workload", "-", "--cluster", CLUSTER, "--json", stdin=said.out).json["tasks"] == 4


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(["log.swf", "--compress", "0"], "--compress: has to be above 0", id="an option's range"),
        pytest.param(["log.swf", "--compress", "x"], "--compress", id="an option's form"),
        pytest.param(["none.swf"], "none.swf: No such file", id="a file"),
        pytest.param(["bad.swf"], "bad.swf:1: has to have 18 fields, has 2", id="a damaged line"),
    ],
)
def test_an_import_that_fails_names_why(tmp_path, words, problem):
    (tmp_path / "log.swf").write_text(SWF)
    (tmp_path / "bad.swf").write_text("1 2\n")
    said = largesse("import", "swf", tmp_path / words[0], *words[1:])

    assert (said.code, said.out) == (2, "")
    assert problem in said.err


def test_a_reader_that_goes_early_is_no_error(tmp_path):
    lines = "".join(SWF.splitlines()[1].replace("1 ", f"{i} ", 1) + "\n" for i in range(1, 20_001))
    (tmp_path / "log.swf").write_text(lines)
    process = subprocess.Popen(
        [sys.executable, "-m", "services.cli.main", "import", "swf", tmp_path / "log.swf"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 141


def test_a_traceback_is_shown_only_where_it_is_asked_for(tmp_path):
    said = largesse("import", "swf", tmp_path)

    assert said.code == 2
    assert "Traceback" not in said.err
    assert "Traceback" in largesse("import", "swf", tmp_path, LARGESSE_DEBUG="1").err


@pytest.mark.parametrize(("from_ms", "ended", "makespan"), [(5_000, 0, "15.0 s"), (35_000, 4, "45.0 s")])
def test_where_all_nodes_fail_no_measure_counts_what_never_ended(from_ms, ended, makespan, tmp_path):
    (tmp_path / "outages.jsonl").write_text(json.dumps({"nodes_permille": 1_000, "from_ms": from_ms}))
    asked = ("simulate", *SMALL, "--outages", tmp_path / "outages.jsonl")

    found = largesse(*asked, "--json").json
    rows = dict(re.findall(r"^ *(\S.*?) {2,}(.*?) *$", largesse(*asked, COLUMNS="120").out, re.MULTILINE))

    assert all(0 <= share <= 1 for share in found["utilisation"].values())
    assert rows["unfinished"] == f"{20 - ended} of 20 jobs, which the times of completion leave out"
    assert rows["makespan"] == makespan
    assert (rows["completion, mean"] == "-") == (ended == 0)
