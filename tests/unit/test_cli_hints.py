"""What refusals say of the place, and what would be right: of `submit` and `run`, of names, of `cancel`."""

import json

import pytest

from largesse.task_output import Wanted
from services.gateway.http.agents.output import check_task
from services.gateway.http.problems import Problem
from tests.builders import job, stage
from tests.cells import one_node_cell
from tests.gateway_watch import Watched
from tests.gateway_watch import stage as watched_stage
from tests.unit.cli_here import largesse
from tests.unit.cli_process import CLUSTER
from tests.unit.stub_server import respond, serving

TREE = {"name": "root", "children": [{"name": "ads", "children": [{"name": "prod"}]}, {"name": "ml"}]}


def asked_of(answers, *words):
    """A command with a gateway that has these answers by path: a status and a document."""

    def answer(request, _):
        status, document = answers[request.path.partition("?")[0]]
        respond(request, status, {"Content-Type": "application/json"}, json.dumps(document).encode())

    with serving(answer) as url:
        return largesse(*words, LARGESSE_URL=url)


@pytest.mark.parametrize(
    ("field", "detail", "text"),
    [
        ("queue", 'queue: queue "ads/tset" is not in the tree', 'queue: "ads/tset" is not in the tree'),
        ("user", 'user: user "eve" may not submit to queue "ml"', 'user: "eve" may not submit to queue "ml"'),
        ("stages[0].demand.cpu", "stages[0].demand.cpu: too large", "stages[0].demand.cpu: too large"),
    ],
)
def test_a_refusal_by_the_cell_names_the_file_and_the_field_once(tmp_path, field, detail, text):
    problem = {"type": "urn:largesse:refused:some", "detail": detail, "field": field}
    file = tmp_path / "job.json"
    task = {"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": 1}}
    file.write_text(json.dumps({"job": "j", "stages": [task]}))

    said = asked_of({"/v1/jobs": (422, problem)}, "submit", file)
    assert (said.code, said.out, said.err) == (1, "", f"largesse: {file}: {text}\n")
    assert asked_of({"/v1/jobs": (422, problem)}, "run", "true").err == f"largesse: run: {text}\n"


def test_a_problem_that_is_not_of_the_file_does_not_name_it(tmp_path):
    file = tmp_path / "job.json"
    task = {"stage": "s", "tasks": 1, "command": ["true"], "demand": {"cpu": 1}}
    file.write_text(json.dumps({"job": "j", "stages": [task]}))
    problem = {"type": "urn:largesse:internal", "detail": "see the gateway's log"}

    said = asked_of({"/v1/jobs": (500, problem)}, "submit", file)
    assert (said.code, said.err) == (3, "largesse: see the gateway's log\n")


# ---------------------------------------------------------------- cancel
@pytest.mark.parametrize(
    ("queue", "tree", "text"),
    [
        ("nope", TREE, '; queue "nope" is not in the tree'),
        ("ads/prdo", TREE, '; queue "ads/prdo" is not in the tree: did you mean "ads/prod"?'),
        ("ads", TREE, ""),
        ("default", TREE, ""),
        ("ads/prod", TREE, ""),
        ("nope", None, ""),
    ],
)
def test_where_no_job_is_found_to_cancel_a_queue_that_is_not_there_is_named(queue, tree, text):
    answers = {"/v1/jobs": (200, {"jobs": []}), "/v1/config": (200, {"set": {}, "queues": tree})}
    said = asked_of(answers, "cancel", "--queue", queue)

    assert (said.code, said.out, said.err) == (1, "", f"largesse: no live job matches{text}\n")


def test_a_filter_that_finds_nothing_is_an_error_document_too():
    said = asked_of({"/v1/jobs": (200, {"jobs": []})}, "cancel", "--user", "ann", "--json")

    assert (said.code, said.json) == (1, {"error": {"detail": "no live job matches", "exit_code": 1}})


def test_jobs_of_a_queue_that_is_not_there_are_none_and_the_queue_is_named():
    answers = {"/v1/jobs": (200, {"jobs": []}), "/v1/config": (200, {"set": {}, "queues": TREE})}

    said = asked_of(answers, "get", "jobs", "--queue", "ads/prdo", "--json")
    assert (said.code, said.json) == (0, [])
    assert said.err == 'queue "ads/prdo" is not in the tree: did you mean "ads/prod"?\n'
    assert asked_of(answers, "get", "jobs", "--queue", "ads").err == ""


def test_a_ledger_without_accounts_says_in_a_pipe_too_who_keeps_them():
    said = asked_of({"/v1/ledger": (200, {"queues": [], "jobs": []})}, "get", "ledger")
    assert (said.code, said.err) == (0, "no accounts: only the presets carbyne and carbyne-dag keep them\n")


# ---------------------------------------------------------------- files of another kind, options in another place
@pytest.mark.parametrize(
    ("words", "document", "text"),
    [
        (("submit",), {"queues": TREE}, "is a config, not a job: use `largesse config apply FILE`"),
        (("submit",), {"set": {"preset": "drf"}}, "is a config, not a job: use `largesse config apply FILE`"),
        (("submit",), {"nodes": []}, "is a cluster file, not a job: use `largesse up --cluster FILE`"),
        (("config", "apply"), {"job": "j", "stages": []}, "is a job, not a config: use `largesse submit FILE`"),
        (("submit",), {"stages": [], "queues": {}}, "queues: unknown field; did you mean"),
    ],
)
def test_a_file_of_another_kind_is_told_with_the_command_that_takes_it(tmp_path, words, document, text):
    file = tmp_path / "file.json"
    file.write_text(json.dumps(document))

    said = largesse(*words, file)
    assert said.code == 2
    assert said.err.startswith(f"largesse: {file}: {text.replace('FILE', str(file))}")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--url", "http://a", "get", "jobs"), "here: --url. It goes after the command, like largesse get jobs"),
        (("get", "--url", "http://a", "jobs"), "here: --url. It goes after the command, like largesse get jobs"),
        (("get", "jobs", "--context", "a"), "here: --context. It goes before the command, like largesse --context"),
        (("get", "--context", "a", "jobs"), "here: --context. It goes before the command, like largesse --context"),
        (("cancel", "j", "--context", "a"), "here: --context. It goes before the command, like largesse --context"),
        (
            ("get", "jobs", "--cell", "a"),
            "here: --cell. It goes before the command, like largesse --cell NAME get jobs",
        ),
        (("up", "--http", "127.0.0.1:18642"), "is not a whole number. Write the port alone: --http 18642"),
    ],
)
def test_an_option_that_is_written_otherwise_is_told_how(words, text):
    said = largesse(*words, columns=200)
    assert said.code == 2
    assert text in said.err


# ---------------------------------------------------------------- names that are nearly right
def test_a_preset_that_is_misspelt_is_said_once_with_the_nearest():
    said = largesse("compare", "--presets", "fifo,carbine", "--workload", "-", "--cluster", CLUSTER)

    assert said.code == 2
    assert said.err.startswith('largesse: --presets: "carbine": has to be one of fifo, ')
    assert said.err.endswith('; did you mean "carbyne"?\n')
    assert said.err.count("carbine") == 1


def test_a_resource_that_is_misspelt_is_named_with_the_nearest_though_no_node_has_it():
    rejected = one_node_cell().take(job("j", stage(demand={"cpu": 1, "gpus": 1})))

    assert rejected.detail == 'no node has "gpus" (did you mean "gpu"?); there is cpu, memory'


@pytest.mark.parametrize(("tasks", "text"), [(1, 'stage "s" has one task, index 0'), (3, 'stage "s" has tasks 0 to 2')])
def test_a_task_that_is_not_there_is_told_with_those_that_are(tasks, text):
    cell = Watched().submit("j", watched_stage(tasks=tasks))
    with pytest.raises(Problem, match=text):
        check_task(cell.view, Wanted("j", "s", 9))
