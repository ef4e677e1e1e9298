"""Operators of Airflow run jobs of a cell: they succeed, fail and end as their jobs do."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from largesse.client import Client
from tests.live.up_process import GUARD_S, up
from tests.unit.cli_process import ROOT

PYTHON = os.environ.get("LARGESSE_TEST_AIRFLOW", "")
HERE = Path(__file__).parents[1]

PROGRAM = """
import json, threading, time
from types import SimpleNamespace

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from airflow_largesse import LargesseOperator, name_of
from largesse.client import Client, JobSpec, Refused, Stage

SMALL = {"cpu": "100m", "memory": "64Mi"}


def job(*command, **more):
    return {"stages": [{"stage": "run", "tasks": 1, "demand": SMALL, "command": list(command), **more}]}


def ti(task, number=1):
    return SimpleNamespace(dag_id="d", task_id=task, run_id="r", map_index=-1, try_number=number)


def run(operator, number=1):
    return operator.execute({"ti": ti(operator.task_id, number)})


said = {}
with DAG("d", schedule=None) as dag:
    good = LargesseOperator(task_id="good", job=job("echo", "{{ ds }}"))
    bad = LargesseOperator(task_id="bad", job=job("sh", "-c", "exit 3"))
    huge = Stage(stage="s", tasks=1, demand={"cpu": 999}, command=["true"])
    slip = LargesseOperator(task_id="slip", job=JobSpec(stages=[huge]))
    long = LargesseOperator(task_id="long", job=job("sleep", "600"))
good.render_template_fields({"ds": "2026-11-29"})
with Client() as cell:
    said["names"] = [run(good), run(good), run(good, 2)]
    said["printed"] = [printed.decode() for _, printed in cell.job_logs(said["names"][0])]
    for name, operator in (("bad", bad), ("slip", slip)):
        try:
            run(operator)
        except (AirflowException, Refused) as error:
            said[name] = f"{type(error).__name__}: {error}"
    killer = threading.Thread(target=lambda: (time.sleep(2), long.on_kill()))
    killer.start()
    try:
        run(long)
    except AirflowException as error:
        said["long"] = str(error)
    killer.join()
    said["jobs"] = {each["job"].split("-")[2]: each["state"] for each in cell.jobs()}
print(json.dumps(said))
"""


@pytest.mark.slow
def test_tasks_succeed_fail_and_end_as_their_jobs_do(tmp_path):
    if not PYTHON:
        pytest.skip("LARGESSE_TEST_AIRFLOW names no Python that has Airflow 3")
    (tmp_path / "program.py").write_text(PROGRAM)
    with up(tmp_path / "cell", "--nodes", 2) as cell:
        env = {"PYTHONPATH": f"{ROOT}:{HERE}", "LARGESSE_URL": cell.url, "LARGESSE_USER": "ann"}
        env |= {"AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        done = subprocess.run(
            [PYTHON, str(tmp_path / "program.py")],
            env=os.environ | env,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])

    first, again, other = said["names"]
    assert first == again != other
    assert (first.startswith("airflow-d-good-"), first[15:].isdigit()) == (True, True)
    assert said["printed"] == ["2026-11-29\n"]
    assert said["bad"].startswith("AirflowException: job airflow-d-bad-")
    assert "exit" in said["bad"]
    assert said["slip"].startswith("Refused: ")
    assert "cancelled" in said["long"]
    assert said["jobs"] == {"good": "succeeded", "bad": "failed", "slip": "rejected", "long": "cancelled"}


DAG_PROGRAM = """
from airflow.sdk import DAG
from airflow_largesse import LargesseOperator

def job(text):
    stage = {"stage": "run", "tasks": 1, "demand": {"cpu": "100m", "memory": "64Mi"}, "command": ["echo", text]}
    return {"stages": [stage]}

with DAG("d", schedule=None) as dag:
    first = LargesseOperator(task_id="first", job=job("{{ ti.task_id }}"))
    first >> LargesseOperator(task_id="second", job=job("after {{ ti.xcom_pull(task_ids='first') }}"))

if __name__ == "__main__":
    assert dag.test().state == "success"
"""


@pytest.mark.slow
def test_a_dag_runs_as_airflow_runs_it(tmp_path):
    if not PYTHON:
        pytest.skip("LARGESSE_TEST_AIRFLOW names no Python that has Airflow 3")
    (tmp_path / "dags").mkdir()
    program = tmp_path / "dags/program.py"
    program.write_text(DAG_PROGRAM)
    with up(tmp_path / "cell") as cell:
        env = os.environ | {"PYTHONPATH": f"{ROOT}:{HERE}", "LARGESSE_URL": cell.url, "LARGESSE_USER": "ann"}
        env |= {"AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        env |= {"AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags")}
        for words in (["-m", "airflow", "db", "migrate"], [str(program)]):
            done = subprocess.run(
                [PYTHON, *words], env=env, capture_output=True, text=True, timeout=2 * GUARD_S, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
        with Client(cell.url) as ask:
            names = {each["job"].split("-")[2]: each["job"] for each in ask.jobs()}
            printed = {task: b"".join(part for _, part in ask.job_logs(name)) for task, name in names.items()}

    assert printed == {"first": b"first\n", "second": f"after {names['first']}\n".encode()}
