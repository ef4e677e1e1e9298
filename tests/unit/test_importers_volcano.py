"""Jobs of Volcano, and further options of batch scripts."""

import json

import pytest

from schemas.edge.jobs import read_job, read_workload_line
from services.simulator.workloads import kubernetes, sbatch
from services.simulator.workloads.files import Damaged
from tests.unit.test_importers_jobs import Left, written

__all__ = ["written"]

HEAD = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: tf, namespace: lab}\n"
TRAINING = (
    HEAD
    + """\
spec:
  minAvailable: 3
  schedulerName: volcano
  queue: gpus
  maxRetry: 5
  plugins: {env: [], svc: []}
  policies:
  - {event: PodEvicted, action: RestartJob}
  tasks:
  - name: ps
    replicas: 1
    template:
      spec:
        containers:
        - {name: c, image: lab/tf:1, command: [python, ps.py], resources: {requests: {cpu: 2}}}
  - name: worker
    replicas: 2
    maxRetry: 2
    dependsOn: {name: [ps]}
    policies:
    - {event: TaskCompleted, action: CompleteJob}
    template:
      spec:
        nodeSelector: {zone: a}
        tolerations: []
        containers:
        - name: c
          command: [python, worker.py]
          env: [{name: MODE, value: fast}]
          resources: {requests: {cpu: 1, memory: 1Gi}, limits: {nvidia.com/gpu: 1}}
"""
)


def readable(line):
    document = json.loads(json.dumps(line))
    return read_workload_line(document) if "submit_ms" in line else read_job(document, "somebody")


def test_each_group_of_tasks_is_a_stage_and_a_gang_where_all_start_together(written):
    left = Left()

    (line,) = kubernetes.convert(written(TRAINING), times=False, queue="volcano", leave=left)

    assert line == {
        "job": "tf",
        "queue": "gpus",
        "stages": [
            {"stage": "ps", "after": [], "tasks": 1, "demand": {"cpu": "2"}, "command": ["python", "ps.py"]},
            {
                "stage": "worker",
                "after": [],
                "tasks": 2,
                "demand": {"cpu": "1", "gpu": "1", "memory": "1Gi"},
                "gang": True,
                "retries": 2,
                "labels": {"zone": "a"},
                "command": ["python", "worker.py"],
                "env": {"MODE": "fast"},
            },
        ],
    }
    assert left == {
        "gang: of all its groups of tasks: each of them is one by itself": 1,
        "plugin: env": 1,
        "plugin: svc": 1,
        "policy: of the Job": 1,
        "policy: of a group of tasks": 1,
        "maxRetry: counts restarts of the whole Job, retries those of a task": 1,
        "dependsOn: waits until others run, `after` until they have ended": 1,
        "field: tolerations": 1,
        "image: tasks are started as they are": 1,
    }
    assert readable(line)


def test_with_times_it_is_a_line_of_a_workload(written):
    (line,) = kubernetes.convert(written(TRAINING), duration_ms=7, queue="namespace")

    assert (line["queue"], line["submit_ms"], [each["duration_ms"] for each in line["stages"]]) == ("lab", 0, [7, 7])
    assert readable(line)


def group(replicas=None, least=None):
    pod = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    found = {"name": "w", "template": {"spec": pod}}
    found |= {} if replicas is None else {"replicas": replicas}
    return found | ({} if least is None else {"minAvailable": least})


def volcano(*groups, **spec):
    meta = {"name": "j"}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": meta,
        "spec": spec | {"tasks": groups},
    }


@pytest.mark.parametrize(
    ("spec", "groups", "gangs", "said"),
    [
        ({}, [group(4)], [True], {}),
        ({"minAvailable": 4}, [group(4)], [True], {}),
        ({"minAvailable": 1}, [group(4)], [False], {}),
        ({"minAvailable": 3}, [group(4)], [False], {"gang: of a part of the tasks: all start as they find room": 1}),
        ({"minAvailable": 1}, [group(3, 3), group(2)], [True, False], {}),
        ({"minAvailable": 1}, [group()], [False], {}),
        ({}, [group(0), group(1)], [False], {}),
    ],
)
def test_who_starts_together(written, spec, groups, gangs, said):
    left = Left()
    (line,) = kubernetes.convert(written(volcano(*groups, **spec)), leave=left)

    assert ([each.get("gang", False) for each in line["stages"]], left) == (gangs, said)
    assert readable(line)


def test_one_without_tasks_is_left_out_and_one_that_cannot_start_is_damaged(written):
    left = Left()

    assert list(kubernetes.convert(written(volcano(group(0))), leave=left)) == []
    assert left == {"job: no tasks": 1}
    with pytest.raises(Damaged, match="at most the number of tasks, 2, is 3"):
        list(kubernetes.convert(written(volcano(group(2), minAvailable=3))))


# ---------------------------------------------------------------- sbatch
def test_a_script_that_is_held_and_sets_variables(written):
    text = "#!/bin/sh\n#SBATCH -H --export=ALL,MODE=fast,SEED=3\n#SBATCH --nice=5 --time=5\necho $MODE\n"
    left = Left()
    (line,) = sbatch.convert(written(text), times=False, leave=left)

    assert (line["hold"], line["stages"][0]["env"]) == (True, {"MODE": "fast", "SEED": "3"})
    assert left == {"variable of --export: taken from who submits": 1, "option: --nice": 1}
    assert readable(line)
    left = Left()
    (line,) = sbatch.convert(written(text), leave=left)
    assert ("hold" in line, left["option: --hold"]) == (False, 1)
