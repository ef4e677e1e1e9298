"""Small things that a newcomer meets first: the version, a task where a job is asked for, options, files in the way."""

import re
import tomllib

import pytest

from schemas.edge.strict_json import INPUT_BYTES_MAX
from schemas.wording import plural
from services.replay.verdict import Span, Verdict
from tests.unit.cli_here import largesse
from tests.unit.cli_process import CLUSTER, ROOT, WORKLOAD

NOWHERE = "http://127.0.0.1:9"


def test_the_version_is_that_of_the_distribution():
    number = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    said = largesse("--version")

    assert (said.code, said.out.partition(" (")[0], said.err) == (0, f"largesse {number}", "")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (1_000, "1,000 jobs"), (1_001, "1,001 jobs")]
)
def test_one_is_no_plural(count, text):
    assert plural(count, "job") == text


@pytest.mark.parametrize(
    ("rounds", "last", "text"),
    [
        (1, 4, "log: same: 1 round compared, 1 record; round 4 is of rules 2: fed, not compared"),
        (2, 5, "log: same: 2 rounds compared, 1 record; rounds 4 to 5 are of rules 2: fed, not compared"),
    ],
)
def test_what_a_verification_came_to_is_told_in_the_right_number(rounds, last, text):
    assert Verdict("log", records=1, rounds_compared=rounds, fed=[Span(2, 4, last)]).text() == text


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("words", [[], ["get"], ["node"], ["config"], ["context"], ["admin"], ["import"]], ids=" ".join)
def test_no_short_help_is_cut(words, columns):
    _, _, commands = largesse(*words, "--help", columns=columns).out.partition("Commands:\n")

    assert commands
    assert not [line for line in commands.splitlines() if line.endswith("...")]


@pytest.mark.parametrize("over", [1, 3_000_000])
def test_of_a_spec_that_is_too_large_nobody_says_how_large_it_is(tmp_path, over):
    path = tmp_path / "job.json"
    path.write_bytes(b" " * (INPUT_BYTES_MAX + over))

    for words, stdin in ((path, b""), ("-", path.read_bytes())):
        said = largesse("submit", words, "--url", NOWHERE, stdin=stdin)
        assert (said.code, said.out) == (2, "")
        assert said.err.endswith(f": is too large: at most {INPUT_BYTES_MAX} bytes, has more\n")


def test_a_spec_as_large_as_may_be_is_read(tmp_path):
    path = tmp_path / "job.json"
    path.write_bytes(b'{"cancel": 1}'.ljust(INPUT_BYTES_MAX))

    assert "cancel: unknown field" in largesse("submit", path, "--url", NOWHERE).err


@pytest.mark.parametrize("words", [["watch"], ["get", "job"], ["cancel"]])
def test_a_task_where_a_job_is_asked_for_is_told_apart(words):
    said = largesse(*words, "word-count/map/0", "--url", NOWHERE)

    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "largesse: ID: 'word-count/map/0' is not a job's id: leave out the stage and the task: word-count\n"
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.gz"
    assert largesse("simulate", "--workload", WORKLOAD, "--cluster", CLUSTER, "--log", path).code == 0
    return path


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--preset", "drf"], "--preset: goes with --what-if"),
        (["--set", "seed=1"], "--set: goes with --what-if"),
        (["--from", "3"], "--from: goes with --what-if"),
        (["--what-if", "--verify"], "--what-if: cannot be combined with --verify"),
        (["--what-if", "--until", "3"], "--what-if: cannot be combined with --until: write --to"),
        (["--what-if", "--preset", "drff"], "--preset: has to be one of"),
        (["--what-if", "--set", "seed"], "--set: "),
        (["--what-if", "--slower", "no"], "--slower: 'no' has to be 0.001 to 1,000"),
        (["--what-if", "--from", "yesterday"], "--from: 'yesterday' is neither a record's seq nor a time"),
        (["--what-if", "--from", "9", "--to", "5"], "--to: lies before --from"),
        (["--what-if", "--seeds", "0"], "--seeds: has to be 1 to 1,000"),
        (["--what-if", "--seeds", "2", "--set", "seed=1"], "--seeds: leave seed out of --set"),
        (["--what-if", "--preset", "drf,fifo", "--seeds", "2"], "--seeds: takes one preset at a time"),
        (["--what-if", "--remove-node", "nowhere"], "--remove-node: node 'nowhere' is not in this log"),
        (["--what-if", "--without-job", "none"], "--without-job: job 'none' is not in this log"),
        (["--what-if", "--add-nodes", "many"], "--add-nodes: 'many' is neither a cluster file nor COUNT:"),
        (["--what-if", "--add-nodes", "2:cpu=x"], "--add-nodes: 2:cpu=x: "),
        (["--what-if", "--queues", "nowhere.json"], "nowhere.json"),
    ],
)
def test_a_what_if_that_makes_no_sense_names_the_option_and_what_is_wrong(log, words, fault):
    said = largesse("replay", log, *words)

    assert (said.code, said.out) == (2, "")
    assert fault in said.err
    assert said.err.count("\n") == 1


def test_a_what_if_lays_both_worlds_side_by_side(log):
    said = largesse("replay", log, "--what-if", "--preset", "fifo", "--json")
    answer = said.json

    assert (said.code, said.err, answer["from_seq"]) == (0, "", 0)
    assert answer["changed"]["preset"][1] == "fifo"
    assert {"makespan_ms", "jct_ms", "waiting_ms", "jain", "utilisation"} <= {*answer["recorded"]} & {
        *answer["decided"]
    }
    assert {"job", "queue", "class", "submit_ms", "recorded_ms", "decided_ms"} <= {*answer["jobs"][0]}
    text = largesse("replay", log, "--what-if", "--preset", "fifo", columns=60)
    assert (text.code, text.err) == (0, "")
    assert "preset: " in text.out
    assert max(map(len, text.out.splitlines())) <= 60


def test_several_what_ifs_stand_side_by_side(log):
    answers = largesse("replay", log, "--what-if", "--preset", "fifo,drf", "--json").json["answers"]

    assert list(answers) == ["fifo", "drf"]
    assert [answer["changed"]["preset"][1] for answer in answers.values()] == ["fifo", "drf"]
    text = largesse("replay", log, "--what-if", "--preset", "fifo,drf").out
    assert ["recorded", "fifo", "drf"] in [line.split() for line in text.splitlines()]


@pytest.mark.parametrize("verify", [[], ["--verify"]])
def test_beyond_its_end_a_log_says_where_that_is(log, verify):
    last = largesse("replay", log, "--json").json["seq"]

    assert largesse("replay", log, *verify, "--until", last).code == 0
    said = largesse("replay", log, *verify, "--until", last + 1)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"largesse: --until: the log ends at record {last}\n"


def test_an_export_writes_over_nothing_unless_it_is_forced(log, tmp_path):
    target = tmp_path / "out"
    said = largesse("export", log, target)
    assert said.code == 0
    assert re.fullmatch(rf"[0-9,]+ records \(log and decisions\) in {target}\n", said.out)
    assert re.search("^records of the log +[0-9]+$", largesse("replay", target).out, re.M)
    whole = target.read_bytes()
    target.write_text("precious")

    said = largesse("export", log, target)
    assert (said.code, said.out, target.read_text()) == (2, "", "precious")
    assert said.err == f"largesse: {target}: already exists; --force overwrites it\n"

    assert largesse("export", log, target, "--force").code == 0
    assert target.read_bytes() == whole
    assert largesse("export", log, "/dev/null").code == 0
