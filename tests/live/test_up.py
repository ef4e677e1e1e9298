import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from largesse.bodies import read_yaml
from schemas.edge.read import read_input, warnings_of
from services.cli.client import user
from tests.live.up_jobs import job, shell
from tests.live.up_process import GUARD_S, eventually, on_a_terminal, up
from tests.ports import free_port
from tests.unit import cli_here
from tests.unit.cli_process import COMMAND, ROOT, largesse

EXAMPLES = sorted((ROOT / "examples" / "jobs").glob("*.yaml"))


def test_a_job_runs_and_its_output_is_there(cell):
    said = cell.ask("submit", "-", stdin=job("echo", *shell("echo out $LARGESSE_TASK_INDEX; echo err >&2"), tasks=2))

    assert (said.code, said.out, said.err) == (0, "echo\n", "")
    watched = cell.ask("watch", "echo")
    assert watched.code == 0
    assert "echo: succeeded" in watched.out.splitlines()[-1]
    assert cell.ask("logs", "echo/run/1").out == "out 1\n"
    assert cell.ask("logs", "echo/run/1", "--stderr").out == "err\n"
    assert cell.ask("logs", "echo/run/0", "--json").json["output"] == "out 0\n"


def test_a_job_in_yaml_comes_from_a_file(cell, tmp_path):
    (tmp_path / "j.yaml").write_text(
        "job: yaml\nstages:\n  - stage: s\n    tasks: 1\n    demand: {cpu: 500m, memory: 100k}\n    command: ['true']\n"
    )
    said = cell.ask("submit", tmp_path / "j.yaml", "--json")

    assert said.json["job"] == "yaml"
    assert f'{tmp_path}/j.yaml: stages[0].demand.memory: "100k" is less than 1 MiB' in said.err
    assert cell.ask("watch", "yaml", "--json").json["state"] == "succeeded"


def test_the_same_job_again_is_no_error_and_another_of_its_name_is_refused(cell):
    first = cell.ask("submit", "-", stdin=job("twice", "true"))
    again = cell.ask("submit", "-", stdin=job("twice", "true"))
    other = cell.ask("submit", "-", stdin=job("twice", "false"))

    assert (first.code, again.code, again.out) == (0, 0, "twice\n")
    assert "in the cell already" in again.err
    assert (other.code, other.out) == (1, "")
    assert "job:" in other.err


def test_a_job_that_fails_says_where(cell):
    cell.ask("submit", "-", stdin=job("bad", *shell("echo no >&2; exit 3")))
    watched = cell.ask("watch", "bad")

    assert watched.code == 1
    assert "run/0" in watched.err
    document = cell.ask("get", "job", "bad", "--json").json
    assert (document["state"], [each["exit_code"] for each in document["failures"]]) == ("failed", [3]), document
    assert "failed" in cell.ask("get", "job", "bad").out
    assert [each["job"] for each in cell.ask("get", "jobs", "--state", "failed", "--json").json] == ["bad"]


def test_a_cancelled_job_is_killed(cell):
    cell.ask("submit", "-", stdin=job("long", "sleep", "600"))
    cell.until("long", lambda document: document["tasks"]["running"] == 1)
    said = cell.ask("cancel", "long")

    assert (said.code, said.out) == (0, "long: cancelled\n")
    assert cell.ask("cancel", "long").code == 1
    assert cell.ask("watch", "long").code == 1
    again = cell.ask("submit", "-", stdin=job("long", "sleep", "600"))
    assert (again.code, again.out) == (1, "")
    assert "long is known here, word for word, and does not run again: it was cancelled; --rerun" in again.err


def test_output_is_followed_to_the_end_of_the_job(cell):
    cell.ask("submit", "-", stdin=job("slow", *shell("echo one; sleep 1; echo two")))
    cell.until("slow", lambda document: document["started_ms"] is not None)

    assert cell.ask("logs", "slow/run/0", "--follow").out == "one\ntwo\n"


def test_a_drained_node_gets_nothing_and_a_resumed_one_does(cell):
    eventually(lambda: not any(node["running"] for node in cell.ask("get", "nodes", "--json").json))  # Of other tests.
    assert cell.ask("node", "drain", "node-0").out == "node-0: draining, 0 tasks on it\n"
    cell.ask("submit", "-", stdin=job("elsewhere", *shell("echo $LARGESSE_NODE"), tasks=4))
    cell.ask("watch", "elsewhere")
    ran_on = {cell.ask("logs", f"elsewhere/run/{i}").out for i in range(4)}

    assert ran_on == {"node-1\n"}
    assert cell.ask("node", "resume", "node-0", "--json").json["state"] == "ready"
    assert cell.ask("node", "drain", "node-9").code == 1


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        pytest.param(["get", "job", "none"], 1, 'job "none" is unknown', id="an unknown job"),
        pytest.param(["watch", "none"], 1, 'job "none" is unknown', id="watching one"),
        pytest.param(["logs", "none/s/0"], 1, 'job "none" is unknown', id="its output"),
        pytest.param(["logs", "none"], 1, 'job "none" is unknown', id="output of all its tasks"),
        pytest.param(["logs", "none/s/0/1"], 2, "JOB/STAGE/INDEX", id="no task"),
        pytest.param(["submit", "no-such-file"], 2, "no-such-file: No such file", id="no file"),
        pytest.param(["submit", "-"], 2, "standard input: ", id="nothing"),
        pytest.param(["get", "jobs", "--state", "idle"], 2, "--state", id="no state"),
        pytest.param(["get", "jobs", "--limit", "0"], 2, "--limit", id="no limit"),
        pytest.param(["get", "jobs", "--url", "here"], 2, "--url", id="no address"),
        pytest.param(["get", "jobs", "--url", "http://127.0.0.1:9"], 3, "no answer from", id="nobody there"),
        pytest.param(["config", "apply", "-"], 2, "standard input: ", id="no config"),
    ],
)
def test_what_goes_wrong_has_a_code_and_a_name(cell, words, code, problem):
    said = cell.ask(*words)

    assert (said.code, said.out) == (code, "")
    assert problem in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("stages: [{stage: s, demand: {cpu: 1}, tasks: 1, comand: [a]}]", "stages[0].comand", id="a slip"),
        pytest.param("stages: [{stage: s, demand: {memory: 512}, tasks: 1}]", '"512Mi"', id="a few bytes"),
        pytest.param("a: &x 1", "anchors are not taken", id="an anchor"),
        pytest.param('{"job": "x", "job": "y"}', "job: is given twice", id="a key twice"),
        pytest.param('{"cancel": "x"}', "largesse cancel", id="another message"),
    ],
)
def test_a_malformed_job_is_refused_before_it_is_sent(text, problem):
    said = cli_here.largesse("submit", "-", "--url", "http://127.0.0.1:9", stdin=text)

    assert said.code == 2
    assert problem in said.err


def test_what_the_cell_cannot_run_is_refused_with_its_field(cell):
    said = cell.ask("submit", "-", stdin=job("huge", "true", cpu="4096"))

    assert (said.code, said.out) == (1, "")
    assert "stages[0].demand" in said.err
    assert cell.ask("get", "job", "huge", "--json").json["state"] == "rejected"


def test_queues_come_and_go_by_config(cell, tmp_path):
    (tmp_path / "q.yaml").write_text(
        "queues: {name: root, children: [{name: ads, weight: 2.5}]}\nset: {theta_permille: 90}\n"
    )

    preview = cell.ask("config", "apply", tmp_path / "q.yaml", "--dry-run")
    assert (preview.code, preview.err) == (0, "")
    assert "+ ads" in preview.out
    assert preview.out.endswith("dry run: nothing has been changed\n")
    assert cell.ask("config", "apply", tmp_path / "q.yaml", "--dry-run", "--json").json["changed"] is True
    assert cell.ask("config", "apply", tmp_path / "q.yaml").out == "in force\n"
    assert cell.ask("config", "apply", tmp_path / "q.yaml").out == "in force already: nothing changed\n"
    assert "ads" in cell.ask("get", "queues").out
    lost = cell.ask("submit", "-", stdin=json.dumps({**json.loads(job("lost", "true")), "queue": "adds"}))
    assert lost.code == 1
    assert 'the nearest name is "ads"' in lost.err
    shown = cell.ask("config", "show")
    assert cell.ask("config", "apply", "-", stdin=shown.out).out == "in force already: nothing changed\n"
    (tmp_path / "bare.json").write_text(
        '{"queues": {"name": "root", "children": [{"name": "ads", "max": {"disk": "4k"}}]}}'
    )
    bare = cell.ask("config", "apply", tmp_path / "bare.json", "--dry-run")
    assert 'queues.children[0].max.disk: "4k" is less than 1 MiB' in bare.err
    (tmp_path / "odd.json").write_text(
        '{"queues": {"name": "root", "children": [{"name": "ads", "max": {"cup": "4"}}]}}'
    )
    odd = cell.ask("config", "apply", tmp_path / "odd.json")
    noted = 'note: queue ads: max cup: no node has that; did you mean "cpu"?\n'
    assert (odd.out, odd.err) == ("in force\n", noted)


def test_tables_fit_a_narrow_terminal_and_are_rows_in_a_pipe(cell):
    for what in ("jobs", "nodes", "queues", "reservations"):
        code, shown = on_a_terminal("get", what, "--url", cell.url, columns=60)
        assert code == 0
        assert max(map(len, shown.splitlines())) <= 60

        piped = [line.split("\t") for line in cell.ask("get", what).out.splitlines()]
        assert {len(row) for row in piped} == {len(piped[0])}


def test_a_second_cell_on_the_same_folder_is_told_who_holds_it(cell):
    said = largesse("up", "--data", cell.data, "--http", 0)

    assert said.code == 2
    assert f"held by process {cell.process.pid}" in said.err


def test_a_port_that_is_taken_is_named(cell, tmp_path):
    port = cell.url.rpartition(":")[2]
    said = largesse("up", "--data", tmp_path / "new" / "data", "--http", port)

    assert said.code == 2
    assert list(tmp_path.iterdir()) == []  # A start that came to nothing leaves no folder behind.
    assert f"--http: 127.0.0.1:{port}" in said.err
    assert "0 for any that is free" in said.err


def test_the_log_of_a_cell_that_runs_is_decided_again_as_it_stands(cell, tmp_path):
    said = largesse("replay", cell.data, "--verify", "--json")

    assert said.json["same"] is True
    assert said.json["rounds_compared"] > 0
    assert largesse("replay", cell.data, "--json").json["nodes"] == {"ready": 2}
    assert largesse("export", cell.data, tmp_path / "log.gz").code == 0
    assert largesse("replay", tmp_path / "log.gz", "--verify").code == 0


def test_the_cell_at_a_glance_is_drawn_once_in_a_pipe_and_says_what_get_says(cell):
    piped = cell.ask("top")
    code, shown = on_a_terminal("top", "--once", "--url", cell.url, columns=60)
    summary = cell.ask("top", "--json").json
    again = cell.ask("top", "--json", "--at", str(summary["seq"])).json

    assert (piped.code, code) == (0, 0)
    assert piped.out.startswith("default (")
    assert "queue\tguaranteed\tdue\thas" in piped.out
    assert max(map(len, shown.splitlines())) <= 60
    assert again.pop("at")["seq"] == summary["seq"]
    assert again == summary
    tree = cell.ask("get", "queues", "--at", str(summary["seq"]), "--json").json
    assert tree.pop("at")
    assert summary["queues"] == tree


def test_the_cell_is_shown_as_it_was(cell):
    cell.ask("submit", "-", stdin=job("then", "true", tasks=2))
    assert cell.ask("watch", "then").code == 0
    told = largesse("tail", cell.data, "--job", "then", "--from", "1", "--json").out.splitlines()
    admitted, *_ = [json.loads(line) for line in told if '"type":"JobAdmitted"' in line]

    was = cell.ask("get", "job", "then", "--at", str(admitted["seq"]), "--json").json
    assert (was["state"], was["at"]["seq"]) == ("waiting", admitted["seq"])
    why = cell.ask("why", "then", "--at", str(admitted["seq"]), "--json").json
    assert (why["state"], why["at"]) == ("waiting", was["at"])
    assert why["reasons"][0]["reason"] == "next_round"
    ended = cell.ask("why", "then", "--json").json
    logged = largesse("why", "then", "--log", cell.data, "--json").json
    whole = cell.ask("get", "job", "then", "--json").json
    assert sum(ended["waited"].values()) == whole["ended_ms"] - whole["submitted_ms"]
    assert logged["waited"] == ended["waited"]
    listed = cell.ask("get", "jobs", "--at", str(admitted["seq"]))
    assert "then\twaiting" in listed.out
    assert f"as of record {admitted['seq']:,}" in listed.err
    assert cell.ask("get", "jobs", "--at", str(admitted["seq"]), "--json").json["at"] == was["at"]
    assert cell.ask("get", "job", "then", "--at", str(admitted["seq"] - 1)).code == 1
    for at, problem in (("soon", "--at: 'soon' is neither"), ("99999999", "at: the log ends at record")):
        refused = cell.ask("get", "queues", "--at", at)
        assert (refused.code, problem in refused.err) == (2, True)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_tasks_outlive_the_cell_and_the_next_one_takes_them_over(tmp_path, number):
    go_on = tmp_path / "go-on"
    waits = shell(f"echo begun; while [ ! -e {go_on} ]; do sleep 0.1; done; echo done")
    with up(tmp_path / "data") as first:
        first.ask("submit", "-", stdin=job("patient", *waits))
        first.until("patient", lambda document: document["tasks"]["running"] == 1)
        code, out, err = first.end(number)

        assert (code, err) == (0 if number != signal.SIGKILL else -number, "")
        assert ("1 task runs on" in out) == (code == 0)

        with up(tmp_path / "data") as second:
            go_on.touch()
            assert second.ask("watch", "patient").code == 0
            assert second.ask("logs", "patient/run/0").out == "begun\ndone\n"
            assert second.ask("get", "job", "patient", "--json").json["failures"] == []


def test_tasks_end_with_the_cell_where_that_is_asked_for(tmp_path):
    with up(tmp_path / "data", "--stop-tasks") as cell:
        cell.ask("submit", "-", stdin=job("long", *shell("echo $$ > pid; exec sleep 600")))
        cell.until("long", lambda document: document["tasks"]["running"] == 1)
        # A task runs before its command has come to its first line.
        (pid,) = eventually(
            lambda: [int(at.read_text()) for at in (tmp_path / "data").rglob("work/pid") if at.stat().st_size]
        )
        code, out, _ = cell.end()

        assert (code, out.splitlines()[-1]) == (0, "ended")
        assert not Path(f"/proc/{pid}").exists()


def test_a_service_that_breaks_ends_the_cell_and_is_named(tmp_path):
    with up(tmp_path / "data", LARGESSE_FAILPOINT="leftover:before_decide:4:raise") as cell:
        # How many jobs go into a round is the machine's.
        err = cell.submit_until_it_ends(lambda name: job(name, "true"))

    assert cell.process.returncode == 3
    assert "leftover: Failpoint" in err
    with up(tmp_path / "data") as again:  # What was admitted is there, and goes on.
        assert again.ask("watch", "a").code == 0


def test_who_watches_does_not_keep_the_cell_from_ending_and_goes_on_with_the_next(tmp_path):
    go_on = tmp_path / "go-on"
    waits = shell(f"echo begun; while [ ! -e {go_on} ]; do sleep 0.1; done; echo done")
    address = ("--http", free_port())
    with up(tmp_path / "data", *address) as cell:
        cell.ask("submit", "-", stdin=job("long", *waits))
        cell.until("long", lambda document: document["tasks"]["running"] == 1)
        following = [
            subprocess.Popen([*COMMAND, *words, "--url", cell.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for words in (["watch", "long"], ["logs", "long/run/0", "--follow"])
        ]
        first = [each.stdout.readline() for each in following if each.stdout is not None]
        code, _, err = cell.end()

        assert (code, err) == (0, "")
        with up(tmp_path / "data", *address):
            go_on.touch()
            outputs = [each.communicate(timeout=GUARD_S) for each in following]

    assert [each.returncode for each in following] == [0, 0]
    assert all(b"(still trying, for 60 s)\nthe gateway answers again\n" in err for _, err in outputs)
    assert first[1] + outputs[1][0] == b"begun\ndone\n"
    assert outputs[0][0].splitlines()[-1].partition(b" after ")[0].endswith(b"long: succeeded")


@pytest.mark.parametrize("name", ["cluster.json", "cluster.yaml"])
def test_a_cluster_file_says_nodes_queues_and_policy(tmp_path, name):
    cluster = {
        "nodes": [{"name": "n", "count": 2, "capacity": {"cpu": "1", "memory": "1Gi"}, "labels": {"zone": "a"}}],
        "queues": {"name": "root", "children": [{"name": "ads", "weight": 1.5}]},
        "policy": {"preset": "drf", "altruism_shards": 3},
    }
    (tmp_path / name).write_text(json.dumps(cluster) if name.endswith(".json") else yaml.safe_dump(cluster))
    with up(tmp_path / "data", "--cluster", tmp_path / name) as cell:
        assert cell.ask("get", "queues", "--json").json["children"][0]["weight"] == 1.5
        nodes = cell.ask("get", "nodes", "--json").json
        assert sorted((node["node"], node["capacity"]["cpu"], node["labels"]) for node in nodes) == [
            ("n-0", "1", {"zone": "a"}),
            ("n-1", "1", {"zone": "a"}),
        ]
        assert cell.ask("config", "show").json["set"]["preset"] == "drf"
        assert cell.ask("submit", "-", stdin=job("default", "true")).code == 0
        assert cell.ask("watch", "default").code == 0


CLUSTER = {
    "nodes": [{"name": "n", "capacity": {"cpu": "1", "memory": "1Gi"}}],
    "queues": {"name": "root", "children": [{"name": "ads", "weight": 1.5}]},
    "policy": {"preset": "drf", "theta_permille": 90},
}


def test_a_cluster_file_says_queues_and_policy_at_the_first_start_only(tmp_path):
    file = tmp_path / "a cluster.json"
    file.write_text(json.dumps(CLUSTER))
    with up(tmp_path / "data", "--cluster", file) as first:
        shown = first.ask("config", "show").json
        assert (shown["set"]["preset"], shown["set"]["theta_permille"]) == ("drf", 90)
        first.ask("config", "apply", "-", stdin='{"set": {"theta_permille": 70, "seed": 3}}')
        assert not any("in force" in line for line in first.greets())

    with up(tmp_path / "data", "--cluster", file) as second:
        assert second.ask("config", "show").json["set"] == {**shown["set"], "theta_permille": 70, "seed": 3}
        applied = second.ask("config", "apply", file)
        assert (applied.code, applied.out) == (0, "in force\n")
        assert "nodes: ignored" in applied.err
        assert second.ask("config", "show").json["set"] == {**shown["set"], "seed": 3}
        assert second.ask("config", "apply", file).out == "in force already: nothing changed\n"
        assert second.ask("config", "apply", file, "--dry-run").out == "in force already: nothing would change\n"
        second.ask("config", "apply", "-", stdin='{"queues": {"name": "root", "children": [{"name": "ml"}]}}')
        (line,) = [line for line in second.greets() if "in force" in line]
        assert line == (
            f"in force is not what {file} says of theta_permille:"
            f" `largesse config apply '{file}' --url {second.url}` puts that in force"
        )

    with up(tmp_path / "data", "--cluster", file) as third:
        assert any("says of queues: `largesse config apply" in line for line in third.greets())


def test_nodes_of_an_earlier_start_that_are_not_started_are_named(tmp_path):
    with up(tmp_path / "data", "--nodes", 2) as first:
        first.ask("node", "drain", "node-0")
        first.ask("submit", "-", stdin=job("long", "sleep", "600", tasks=2))
        first.until("long", lambda document: document["tasks"]["running"] == 2)
        assert not any("not started" in line for line in first.greets())
        first.end()

    with up(tmp_path / "data", "--nodes", 1) as second:
        consequence = "; what still runs there is ended, and tried again"
        assert any("not started: node-1, of an earlier start" + consequence in line for line in second.greets())


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({"nodes": CLUSTER["nodes"]}, "without queues and policy", id="nodes only"),
        pytest.param({**CLUSTER, "policy": {"presett": "drf"}}, "policy.presett: unknown knob", id="a slip"),
        pytest.param({**CLUSTER, "nodes": []}, "nodes: ", id="no cluster file"),
        pytest.param({"queues": CLUSTER["queues"], "policy": {}}, "policy: ", id="neither this nor that"),
    ],
)
def test_a_cluster_file_that_cannot_be_applied_is_refused_before_it_is_sent(tmp_path, document, problem):
    (tmp_path / "c.json").write_text(json.dumps(document))
    said = cli_here.largesse("config", "apply", tmp_path / "c.json", "--url", "http://127.0.0.1:9")

    assert (said.code, said.out) == (2, "")
    assert f"{tmp_path}/c.json: " in said.err
    assert problem in said.err


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(["--nodes", "0"], "--nodes", id="no nodes"),
        pytest.param(["--nodes", "65"], "--nodes", id="too many nodes"),
        pytest.param(["--nodes", "2", "--cluster", "examples/clusters/small.json"], "--nodes", id="both"),
        pytest.param(["--cluster", "none.json"], "none.json: No such file", id="no file"),
        pytest.param(["--cluster", "examples/jobs/gang.yaml"], "examples/jobs/gang.yaml: ", id="another file"),
        pytest.param(["--data", "/proc/none"], "--data", id="no folder"),
        pytest.param(["--http", "70000"], "--http", id="no port"),
    ],
)
def test_up_names_the_option_that_is_wrong_and_leaves_no_folder_behind(tmp_path, words, problem):
    said = largesse("up", "--data", tmp_path / "new" / "data", *words)

    assert (said.code, said.out) == (2, "")
    assert problem in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_job_without_warnings(path):
    document = read_yaml(path.read_bytes())

    read_input("jobs", document, "")
    assert document["job"] == path.stem
    assert warnings_of(document) == []


def test_the_demo_ends_as_it_says(tmp_path):
    said = largesse("demo", columns=60, TMPDIR=str(tmp_path))

    assert (said.code, said.err) == (0, ""), said.out
    assert "the log verified" in said.out.splitlines()[-1]
    assert "fails: failed" in said.out
    assert list(tmp_path.iterdir()) == []


def test_who_asks_is_the_account_or_what_the_environment_says(monkeypatch):
    monkeypatch.setenv("LARGESSE_USER", "zoë")
    assert user() == "zo?"
    monkeypatch.delenv("LARGESSE_USER")
    assert user() == os.environ.get("LOGNAME", user())
