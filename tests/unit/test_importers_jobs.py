"""Descriptions of jobs: Kubernetes manifests, Batsim workloads, Spark event logs, batch scripts of Slurm."""

import json
import subprocess
from collections import Counter
from random import Random

import pytest

from schemas.edge.jobs import read_job, read_workload_line
from services.simulator.workloads import batsim, kubernetes, sbatch, spark
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.importers import IMPORTERS


class Left(Counter):
    """What an importer says that it left out."""

    def __call__(self, why, what="job", count=1):
        self[f"{what}: {why}"] += count


@pytest.fixture
def written(tmp_path):
    """Writes text, or an object as JSON, and gives its path."""

    def write(*parts):
        path = tmp_path / "given"
        path.write_text("\n".join(part if isinstance(part, str) else json.dumps(part) for part in parts) + "\n")
        return str(path)

    return write


def readable(line):
    """The line as the cell reads it, from its text."""
    document = json.loads(json.dumps(line))
    return read_workload_line(document) if "submit_ms" in line else read_job(document, "somebody")


# ---------------------------------------------------------------- kubernetes
MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  namespace: research
  labels: {kueue.x-k8s.io/queue-name: gpus}
spec:
  completions: 6
  parallelism: 3
  completionMode: Indexed
  backoffLimitPerIndex: 2
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {zone: a}
      initContainers:
      - name: fetch
        resources: {requests: {cpu: 2, memory: 100Mi}}
      containers:
      - name: main
        image: lab/train:1
        command: [python, train.py]
        args: ["--epochs", "3"]
        workingDir: /work
        env:
        - {name: SEED, value: "7"}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}
        resources:
          requests: {cpu: 500m, memory: 1.5Gi}
          limits: {cpu: "1", nvidia.com/gpu: 2, example.com/fpga: 1}
"""


def test_a_manifest_is_a_job_with_a_task_for_each_completion(written):
    left = Left()

    (line,) = kubernetes.convert(written(MANIFEST), queue="namespace", leave=left)

    assert line == {"job": "train", "queue": "research", "submit_ms": 0, "stages": [{
        "stage": "pod", "after": [], "tasks": 6, "demand": {"cpu": "2", "gpu": "2", "memory": "1536Mi"}, "retries": 2,
        "on_failure": "continue", "labels": {"zone": "a"}, "running_max": 3, "duration_ms": 60_000}]}  # fmt: skip
    assert left == {
        "object: of kind ConfigMap": 1,
        "request: of example.com/fpga": 1,
    }
    assert readable(line)


def test_a_bound_on_failed_indexes_is_a_bound_on_failed_tasks(written):
    bounded = MANIFEST.replace("backoffLimitPerIndex: 2", "backoffLimitPerIndex: 2\n  maxFailedIndexes: 4")
    left = Left()

    (line,) = kubernetes.convert(written(bounded), leave=left)

    (stage,) = line["stages"]
    assert (stage["retries"], stage["max_failed"], "on_failure" in stage) == (2, 4, False)
    assert left["maxFailedIndexes: a Job with failed indexes fails, a stage with at most max_failed succeeds"] == 1


def test_a_manifest_without_times_is_a_job_file(written):
    left = Left()

    (line,) = kubernetes.convert(written(MANIFEST), times=False, queue="kueue", leave=left)

    assert (line["queue"], "submit_ms" in line) == ("gpus", False)
    assert line["stages"] == [{
        "stage": "pod", "after": [], "tasks": 6, "demand": {"cpu": "2", "gpu": "2", "memory": "1536Mi"}, "retries": 2,
        "on_failure": "continue", "labels": {"zone": "a"}, "running_max": 3,
        "command": ["python", "train.py", "--epochs", "3"], "env": {"SEED": "7"}, "cwd": "/work"}]  # fmt: skip
    assert left["image: tasks are started as they are"] == left["variable: from the cluster"] == 1
    assert readable(line)


def test_a_pod_that_its_image_starts_is_no_job_file(written):
    left = Left()

    assert list(kubernetes.convert(written(manifest("j")), times=False, leave=left)) == []
    assert left == {"job: without a command that could be started": 1}


def manifest(name, made=None, status=None, resources=None, **spec):
    pod = {"containers": [{"name": "c", "resources": resources or {"requests": {"cpu": "1"}}}]}
    meta = {"name": name} | ({"creationTimestamp": made} if made else {})
    job = {"kind": "Job", "metadata": meta, "spec": {"template": {"spec": pod}} | spec}
    return job | ({"status": status} if status else {})


def test_jobs_that_a_cluster_has_run_have_their_own_times(written):
    ran = {"startTime": "2024-03-01T10:00:10Z", "completionTime": "2024-03-01T10:02:10Z"}
    listed = {"kind": "List", "items": [
        manifest("waves", "2024-03-01T10:00:09Z", ran, completions=6, parallelism=2),
        manifest("once", "2024-03-01T10:00:00Z", ran), manifest("waits", "2024-03-01T10:00:05Z"),
    ]}  # fmt: skip

    lines = kubernetes.convert(written(listed), duration_ms=5)

    assert [(one["job"], one["submit_ms"], one["stages"][0]["duration_ms"]) for one in lines] == [
        ("waves", 9_000, 40_000),  # Three rounds of two.
        ("once", 0, 120_000),
        ("waits", 5_000, 5),
    ]


@pytest.mark.parametrize(("resources", "demand"), [
    ({"requests": {"memory": "128974848"}}, {"memory": "123Mi"}),
    ({"requests": {"memory": "129e6"}}, {"memory": "124Mi"}),
    ({"requests": {"cpu": 0.1, "memory": "64Mi"}}, {"cpu": "100m", "memory": "64Mi"}),
    ({"limits": {"cpu": "2", "amd.com/gpu": 1}}, {"cpu": "2", "gpu": "1"}),
    ({"requests": {"ephemeral-storage": "2Gi"}}, {"disk": "2Gi"}),
    ({"claims": []}, {"cpu": "1"}),
])  # fmt: skip
def test_quantities_of_kubernetes(written, resources, demand):
    (line,) = kubernetes.convert(written(manifest("j", resources=resources)))

    assert line["stages"][0]["demand"] == demand
    assert readable(line)


def test_a_job_without_completions_runs_nothing(written):
    left = Left()

    assert list(kubernetes.convert(written(manifest("j", completions=0)), leave=left)) == []
    assert left == {"job: no completions, or none at a time": 1}


# ---------------------------------------------------------------- batsim
PROFILES = {
    "sleep": {"type": "delay", "delay": 20.2},
    "nap": {"type": "DelayProfile", "delay": 5},
    "work": {"type": "parallel_homogeneous", "cpu": 5e8, "com": 0},
    "shared": {"type": "ParallelTaskHomogeneousProfile", "cpu": 5e8, "com": 1e6,
               "generation_strategy": "DefinedAmountsSpreadUniformly"},
    "uneven": {"type": "parallel", "cpu": [1e8, 3e8, 0, 0], "com": [0] * 16},
    "twice": {"type": "composed", "repeat": 2, "seq": ["nap", "work"]},
    "trace": {"type": "smpi", "trace": "t.txt"},
}  # fmt: skip


def batsim_file(*jobs):
    """Jobs of (profile, further fields)."""
    listed = [{"id": number, "subtime": number, "res": 4, "profile": profile} | more for number, (profile, more) in
              enumerate(jobs)]  # fmt: skip
    return {"nb_res": 4, "jobs": listed, "profiles": PROFILES}


@pytest.mark.parametrize(("profile", "fields", "duration_ms"), [
    ("sleep", {}, 20_200),
    ("work", {}, 5_000),
    ("shared", {}, 1_250),
    ("uneven", {}, 3_000),
    ("twice", {}, 20_000),
    ("sleep", {"walltime": 10}, 10_000),
    ("sleep", {"walltime": -1}, 20_200),
])  # fmt: skip
def test_a_batsim_job_lasts_as_long_as_its_profile(written, profile, fields, duration_ms):
    (line,) = batsim.convert(written(batsim_file((profile, fields))), flops=100_000_000)
    (stage,) = line["stages"]

    assert (stage["tasks"], stage["duration_ms"], stage["gang"]) == (4, duration_ms, True)
    assert stage.get("estimate_ms") == (10_000 if fields.get("walltime", -1) > 0 else None)
    assert readable(line)


def test_what_batsim_alone_can_simulate_is_left_out(written):
    left = Left()
    path = written(batsim_file(("trace", {}), ("shared", {}), ("sleep", {"walltime": 1}), ("nap", {"id": "1"})))

    assert [line["job"] for line in batsim.convert(path, leave=left)] == ["1", "2", "1.2"]
    assert left == {
        "job: profiles of type smpi, whose length is not known": 1,
        "communication: its length depends on the network": 1,
        "end: beyond the walltime, as Batsim kills the job there": 1,
    }


# ---------------------------------------------------------------- spark
def spark_job(number, at, *stages):
    """Stages of (id, parents)."""
    infos = [{"Stage ID": one, "Parent IDs": parents, "Number of Tasks": 1} for one, parents in stages]
    return {"Event": "SparkListenerJobStart", "Job ID": number, "Submission Time": at, "Stage Infos": infos,
            "Stage IDs": [one for one, _ in stages]}  # fmt: skip


def spark_task(stage, index, length, reason="Success", at=1_000):
    return {"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task End Reason": {"Reason": reason},
            "Task Info": {"Index": index, "Launch Time": at, "Finish Time": at + length, "Failed": reason != "Success"},
            "Task Metrics": {"Peak": float("nan"), "JVM GC Time": -9_223_372_036_854_775_808}}  # fmt: skip


def job_end(number):
    return {"Event": "SparkListenerJobEnd", "Job ID": number, "Job Result": {"Result": "JobSucceeded"}}


BEGIN = (
    {"Event": "SparkListenerLogStart", "Spark Version": "3.5.0"},
    {"Event": "SparkListenerApplicationStart", "App Name": "q", "App ID": "app-1", "Timestamp": 5, "User": "ann"},
    {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {
        "spark.task.cpus": "2", "spark.executor.cores": "8", "spark.executor.memory": "16g"}},
)  # fmt: skip


def test_a_spark_job_has_its_stages_and_every_partition_once(written):
    left = Left()
    tasks = [spark_task(0, 1, 30), spark_task(0, 0, 20), spark_task(0, 0, 25),
             spark_task(1, 0, 9, "ExceptionFailure"), spark_task(1, 0, 0)]  # fmt: skip
    path = written(*BEGIN, spark_job(0, 1_000, (0, []), (1, [0])), *tasks, job_end(0))

    (line,) = spark.convert(path, leave=left)

    demand = {"cpu": "2", "memory": "4Gi"}
    assert line == {"job": "app-1.0", "submit_ms": 0, "user": "ann", "stages": [
        {"stage": "s0", "after": [], "demand": demand, "durations_ms": [25, 30]},
        {"stage": "s1", "after": ["s0"], "demand": demand, "durations_ms": [1]}]}  # fmt: skip
    assert left == {"attempt: ended in ExceptionFailure": 1, "attempt: of a partition that was computed again": 1}
    assert readable(line)


def test_a_stage_that_was_skipped_passes_on_whom_it_waited_for(written):
    left = Left()
    path = written(*BEGIN, spark_job(0, 1_000, (0, []), (1, [0]), (2, [1])), spark_task(0, 0, 5), spark_task(2, 0, 7),
                   job_end(0))  # fmt: skip

    (line,) = spark.convert(path, leave=left)

    assert [(stage["stage"], stage["after"]) for stage in line["stages"]] == [("s0", []), ("s2", ["s0"])]
    assert left == {"stage: without a task that succeeded: their results were there, or they failed": 1}


def test_jobs_that_had_not_ended_are_left_out(written):
    left = Left()
    path = written(*BEGIN, spark_job(0, 9, (0, [])), spark_job(1, 9, (5, [])), spark_task(5, 0, 1), job_end(1))

    assert [line["job"] for line in spark.convert(path, leave=left)] == ["app-1.1"]
    assert left == {"job: had not ended with the log": 1}


def test_a_spark_log_agrees_with_a_second_reading(written):
    dice = Random(5)
    events, stage = list(BEGIN), 0
    for number in range(40):
        events.append(spark_job(number, 1_000 + 500 * number, (stage, []), (stage + 1, [stage])))
        events += [spark_task(stage + dice.randrange(2), index, dice.randrange(1, 9_000)) for index in range(20)]
        events.append(job_end(number))
        stage += 2
    tasks = [one for one in events if one["Event"] == "SparkListenerTaskEnd"]
    expected = Counter()
    for one in tasks:
        expected[one["Stage ID"] // 2] += one["Task Info"]["Finish Time"] - one["Task Info"]["Launch Time"]

    lines = list(spark.convert(written(*events)))

    assert [line["submit_ms"] for line in lines] == [500 * number for number in range(40)]
    assert sum(len(part["durations_ms"]) for line in lines for part in line["stages"]) == len(tasks)
    assert {
        int(line["job"][6:]): sum(sum(part["durations_ms"]) for part in line["stages"]) for line in lines
    } == expected


# ---------------------------------------------------------------- sbatch
def script(*options, shell="/bin/bash", body="echo hello"):
    return "\n".join([f"#!{shell}", *(f"#SBATCH {option}" for option in options), "", body])


@pytest.mark.parametrize(("options", "tasks", "demand"), [
    pytest.param([], 1, {"cpu": "1"}, id="nothing asked for"),
    pytest.param(["-n 4", "-c 2", "--mem-per-cpu=1G"], 1, {"cpu": "8", "memory": "8Gi"}, id="processes of one node"),
    pytest.param(["--nodes=2", "--ntasks-per-node=4", "--mem=64G", "--gres=gpu:a100:8"], 2,
                 {"cpu": "4", "memory": "64Gi", "gpu": "8"}, id="a task a node"),
    pytest.param(["-N2", "-n 3"], 2, {"cpu": "2"}, id="processes that do not divide"),
    pytest.param(["-N 2-4", "--gpus=4"], 2, {"cpu": "1", "gpu": "2"}, id="the least of a range, GPUs of the job"),
    pytest.param(["--gpus-per-task=1 --ntasks=3", "--mem-per-gpu=512M"], 1,
                 {"cpu": "3", "memory": "1536Mi", "gpu": "3"}, id="two options on a line"),
    pytest.param(["--gpus=2", "--cpus-per-gpu=16 # each", "--mem-per-gpu=32g"], 1,
                 {"cpu": "32", "memory": "64Gi", "gpu": "2"}, id="cores a GPU, and a comment"),
    pytest.param(["--gres=gpu", "--mem=4096K"], 1, {"cpu": "1", "memory": "4Mi", "gpu": "1"}, id="one GPU of any kind"),
])  # fmt: skip
def test_what_a_script_asks_for(written, options, tasks, demand):
    (line,) = sbatch.convert(written(script(*options)))
    (stage,) = line["stages"]

    assert (stage["tasks"], stage["demand"], stage.get("gang", False)) == (tasks, demand, tasks > 1)
    assert readable(line)


def test_a_script_of_several_nodes_is_no_job_file_as_each_would_run_it(written):
    left = Left()

    assert list(sbatch.convert(written(script("-N 2")), times=False, leave=left)) == []
    assert left["script: of a job of several nodes, each of which would run it"] == 1


@pytest.mark.parametrize(("text", "seconds"), [
    ("90", 5_400), ("90:30", 5_430), ("1:30:00", 5_400), ("2-12", 216_000), ("1-00:30", 88_200), ("0-0:0:5", 5),
])  # fmt: skip
def test_a_time_limit_is_time_out_estimate_and_length(written, text, seconds):
    (line,) = sbatch.convert(written(script(f"--time={text}", "-J night/run", "-p gpu")), queue="partition")
    (stage,) = line["stages"]

    assert (line["job"], line["queue"], line["submit_ms"]) == ("night_run", "gpu", 0)
    assert {stage[name] for name in ("timeout_ms", "estimate_ms", "duration_ms")} == {seconds * 1_000}


@pytest.mark.parametrize(("array", "indexes"), [
    ("0-3", [0, 1, 2, 3]), ("1-9:4%2", [1, 5, 9]), ("7,1,4-5", [1, 4, 5, 7]), ("3", [3]),
])  # fmt: skip
@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/sh", "/usr/bin/env bash"])
def test_each_task_of_an_array_sees_its_index(written, array, indexes, shell):
    text = script(f"--array={array}", shell=shell, body="echo $SLURM_ARRAY_TASK_ID")
    (line,) = sbatch.convert(written(text), times=False)
    (stage,) = line["stages"]

    assert stage["tasks"] == len(indexes)
    assert [
        int(subprocess.run(stage["command"], env={"PATH": "/usr/bin:/bin", "LARGESSE_TASK_INDEX": str(i)},
                           capture_output=True, text=True, check=True).stdout)
        for i in range(len(indexes))
    ] == indexes  # fmt: skip


def test_options_after_the_first_command_are_none_and_others_are_named(written):
    left = Left()
    text = script("--mail-type=END", "--exclusive", "-o out.log", "--array=1-2%1", body="date\n\n#SBATCH --mem=1G")

    (line,) = sbatch.convert(written(text), leave=left, times=False)

    assert line["stages"][0]["demand"] == {"cpu": "1"}
    assert line["stages"][0]["command"][-1].endswith("date\n\n#SBATCH --mem=1G\n")
    assert "duration_ms" not in line["stages"][0]
    assert line["stages"][0]["running_max"] == 1
    assert left == {"option: --mail-type": 1, "option: --exclusive": 1, "option: --output": 1}
    assert readable(line)


# ---------------------------------------------------------------- damage
@pytest.mark.parametrize(("name", "parts", "said"), [
    ("kubernetes", ["kind: Job\n  metadata: x"], "given:2: is no YAML"),
    ("kubernetes", ["kind: Job\nkind: Job"], "given:2: is no YAML: 'kind' stands twice"),
    ("kubernetes", ["[" * 5_000], "given: is nested too deep"),
    ("kubernetes", [manifest("j", completions="many")], "spec: completions: has to be a number"),
    ("kubernetes", [manifest("j", resources={"requests": {"cpu": "lots"}})], "requests: cpu: "),
    ("kubernetes", [{"kind": "Job", "metadata": {"name": "j"}}], "document 1: spec: has to be an object"),
    ("batsim", [batsim_file(("none", {}))], r"jobs\[0\]: profile: there is no profile none"),
    ("batsim", [batsim_file(("nap", {"res": 0}))], r"jobs\[0\]: res: has to be a number of at least 1"),
    ("batsim", [{"jobs": [{"id": 1, "subtime": 0, "res": 1, "profile": "a"}],
                 "profiles": {"a": {"type": "composed", "seq": ["a"]}}}], "contains itself"),
    ("batsim", ["{"], "given: is no JSON"),
    ("spark", [*BEGIN, "{}"], "given:4: Event: has to be there"),
    ("spark", [*BEGIN, spark_job(0, 1, (0, [])), spark_task(0, 0, -1)], "given:5: Task Info: Finish Time: is before"),
    ("spark", [{"Event": "SparkListenerJobStart", "Job ID": "x"}], "given:1: Stage Infos: has to be a list"),
    ("sbatch", ["echo hello"], "given:1: has to begin with #!"),
    ("sbatch", [script("--ntasks=many")], "given:2: --ntasks: has to be a whole number"),
    ("sbatch", [script("-n 1", "--time=soon")], "given:3: --time: has to be like 90"),
    ("sbatch", [script("--array=9-1")], "given:2: --array: has to be like 0-9"),
    ("sbatch", [script("--mem=lots")], "given:2: --mem: has to be an amount"),
    ("sbatch", [script("--gres=gpu:a:b")], "given:2: --gres: has to be like gpu:2"),
    ("sbatch", [script("--mem")], "given:2: --mem: has to have a value"),
])  # fmt: skip
def test_a_damaged_file_is_named(written, name, parts, said):
    with pytest.raises(Damaged, match=said):
        list(IMPORTERS[name].convert(written(*parts)))
