"""Accounts of clusters with dates: Borg, Philly, Helios, Slurm. Small files by hand, and larger ones that a second,
obvious reading has to agree with."""

import csv
import io
import json
from collections import Counter
from datetime import datetime, timedelta
from random import Random

import pytest

from services.simulator.workloads import borg2019, files, helios, philly, sacct
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.importers import IMPORTERS, encode_line
from services.simulator.workloads.workload_file import read_workload

NIGHT = datetime.fromisoformat("2020-06-09T23:30:00")


class Left(Counter):
    """What an importer says that it left out."""

    def __call__(self, why, what="job", count=1):
        self[f"{what}: {why}"] += count


@pytest.fixture
def trace(tmp_path):
    """Writes a trace and gives its path. Text as it is, objects as JSON lines."""

    def write(*lines):
        path = tmp_path / "trace"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return str(path)

    return write


def facts(lines):
    """Of every job: name, submission, tasks, duration."""
    found = []
    for line in lines:
        (stage,) = line["stages"]
        durations = stage.get("durations_ms") or [stage["duration_ms"]] * stage["tasks"]
        found.append((line["job"], line["submit_ms"], durations))
    return found


def readable(lines, tmp_path):
    """Whether the workload file's own reader takes them."""
    path = tmp_path / "workload.jsonl"
    path.write_text("".join(encode_line(line) + "\n" for line in lines))
    return len(list(read_workload(str(path))))


# ---------------------------------------------------------------- borg2019
MICRO = 1_000_000


def event(at_s, kind, index=0, collection="9", **fields):
    request = {"resource_request": {"cpus": 0.125, "memory": 4.5e-05}} if kind == 0 else {}
    return (
        {"time": str(at_s * MICRO), "type": kind, "collection_id": collection, "instance_index": index}
        | request
        | fields
    )


def test_a_collection_is_a_job_and_each_request_a_stage(trace, tmp_path):
    wide = {"resource_request": {"cpus": 0.25, "memory": 0.5}}
    path = trace(event(700, 0), event(700, 0, 1), event(701, 0, 2, **wide), event(710, 3), event(710, 3, 1),
                 event(711, 3, 2), event(720, 6), event(730, "KILL", 1), event(712, 6, 2))  # fmt: skip

    (line,) = borg2019.convert(path, machine_cores=100, machine_memory_mib=100_000)

    assert line == {"job": "c-9", "submit_ms": 0, "queue": "free", "stages": [
        {"stage": "run-1", "after": [], "demand": {"cpu": "12500m", "memory": "5Mi"}, "durations_ms": [10_000, 20_000]},
        {"stage": "run-2", "after": [], "demand": {"cpu": "25", "memory": "50000Mi"}, "durations_ms": [1_000]},
    ]}  # fmt: skip
    assert readable([line], tmp_path) == 1


@pytest.mark.parametrize(("events", "reason"), [
    pytest.param([event(700, 0)], "instance: never ran", id="never scheduled"),
    pytest.param([event(700, 0), event(701, 3)], "instance: had not ended with the trace", id="no end"),
    pytest.param([event(0, 3), event(9, 6)], "instance: submitted before the trace began", id="no submission"),
    pytest.param([event(700, 0, resource_request=None), event(701, 3), event(702, 6)], "instance: without a request",
                 id="no request"),
    pytest.param([event(700, 0, collection_type=1), event(701, 3, collection_type="1")],
                 "alloc set: hold room for other collections and run nothing", id="alloc set"),
])  # fmt: skip
def test_borg_instances_that_are_left_out_have_a_reason(trace, events, reason):
    left = Left()

    assert list(borg2019.convert(trace(*events), leave=left)) == []
    assert left[reason] == 1


def test_an_evicted_instance_lasts_as_long_as_its_last_run(trace):
    left = Left()
    path = trace(event(700, 0), event(710, 3), event(760, 4), event(770, 3), event(775, 6))

    (line,) = borg2019.convert(path, leave=left)

    assert facts([line]) == [("c-9", 0, [5_000])]
    assert left == {"run: earlier ones of instances that ran again": 1}


def test_instances_of_before_the_trace_do_not_say_when_a_job_came(trace):
    earlier = [event(0, 0, 1), event(0, 3, 1), event(650, 6, 1)]
    other = [event(695 + kind // 3, kind, collection="8") for kind in (0, 3, 6)]
    path = trace(*earlier, event(700, 0), event(710, 3), event(720, 6), *other)

    assert facts(borg2019.convert(path)) == [("c-8", 0, [1_000]), ("c-9", 5_000, [10_000])]


def test_borg_tables_are_read_as_json_or_csv_in_any_order(trace):
    events = [event(700, 0), event(710, 3), event(720, 6), event(705, 0, collection="4"), event(711, 3, collection="4"),
              event(713, 6, collection="4")]  # fmt: skip
    text = io.StringIO()
    rows = csv.DictWriter(text, ["time", "type", "collection_id", "instance_index", "resource_request"])
    rows.writeheader()
    rows.writerows({**one, "resource_request": str(one.get("resource_request", ""))} for one in reversed(events))
    dotted = ["time,type,collection_id,instance_index,resource_request.cpus,resource_request.memory"]
    dotted += [f"{one['time']},{one['type']},{one['collection_id']},0,0.125,0.000045" for one in events]

    read = [list(borg2019.convert(trace(*lines))) for lines in (events, [text.getvalue().strip()], dotted)]

    assert facts(read[0]) == [("c-9", 0, [10_000]), ("c-4", 5_000, [2_000])]
    assert read[0] == read[1] == read[2]


def test_a_borg_cell_agrees_with_a_second_reading(trace):
    dice = Random(7)
    events, expected = [], {}
    for number in range(60):
        at = 600 + dice.randrange(5_000)
        spans = [(at + dice.randrange(1, 90), dice.randrange(1, 400)) for _ in range(dice.randrange(1, 9))]
        for index, (start, length) in enumerate(spans):
            events += [event(at, 0, index, str(number)), event(start, 3, index, str(number))]
            events.append(event(start + length, dice.choice((5, 6, 7)), index, str(number)))
        expected[f"c-{number}"] = (at, sorted(length * 1_000 for _, length in spans))
    dice.shuffle(events)
    first = min(at for at, _ in expected.values())

    lines = facts(borg2019.convert(trace(*events)))

    assert {job: (at / 1_000 + first, sorted(durations)) for job, at, durations in lines} == expected
    assert [at for _, at, _ in lines] == sorted(at for _, at, _ in lines)


# ---------------------------------------------------------------- philly
def stamp(minutes):
    return (NIGHT + timedelta(minutes=minutes)).strftime("%Y-%m-%d %H:%M:%S")


def attempt(begin, end, *gpus):
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{j}" for j in range(count)]} for i, count in enumerate(gpus)]
    return {
        "start_time": stamp(begin) if begin is not None else "None",
        "end_time": stamp(end) if end is not None else None,
        "detail": detail,
    }


def philly_job(number, submitted, *attempts):
    return {"status": "Pass", "vc": "v1", "jobid": f"application_{number}", "attempts": list(attempts),
            "submitted_time": stamp(submitted), "user": "u1"}  # fmt: skip


@pytest.mark.parametrize(("machines", "tasks", "gpus"), [
    pytest.param((8, 8), 2, "8", id="a task a machine"),
    pytest.param((8, 4), 12, "1", id="a task a GPU where machines differ"),
    pytest.param((2,), 1, "2", id="one machine"),
])  # fmt: skip
def test_a_philly_job_is_a_gang_of_its_last_attempt(trace, machines, tasks, gpus):
    path = trace(json.dumps([philly_job(1, 5, attempt(6, 8, 1), attempt(10, 15, *machines))], indent=2))

    (line,) = philly.convert(path)

    assert line == {"job": "application_1", "submit_ms": 0, "queue": "v1", "user": "u1", "stages": [
        {"stage": "train", "after": [], "tasks": tasks, "demand": {"gpu": gpus}, "duration_ms": 420_000,
         "gang": True}]}  # fmt: skip
    assert next(philly.convert(path, attempts="last"))["stages"][0]["duration_ms"] == 300_000


def test_philly_attempts_without_times_are_left_out(trace):
    left = Left()
    path = trace(
        philly_job(1, 5),
        philly_job(2, 3, attempt(6, None, 1)),
        philly_job(3, 7, attempt(None, 9, 1), attempt(9, 10, 1)),
    )

    assert facts(philly.convert(path, leave=left)) == [("application_3", 240_000, [60_000])]
    assert left == {"job: no attempt that began and ended": 2, "attempt: without a beginning and an end": 2}


def test_a_philly_log_agrees_with_a_second_reading_however_it_is_laid_out(trace):
    dice = Random(3)
    jobs = []
    for number in range(300):
        at = dice.randrange(9_000)
        begun = [at + dice.randrange(1, 60) for _ in range(dice.randrange(3))]
        jobs.append(
            philly_job(number, at, *(attempt(b, b + dice.randrange(1, 99), dice.choice((1, 2, 8))) for b in begun))
        )
    jobs[5]["user"] = 'a "brace" { and a \\ in a text'
    first = min(job["submitted_time"] for job in jobs)

    def seconds(later, earlier):
        return int((datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())

    expected = [
        (job["jobid"], seconds(job["submitted_time"], first) * 1_000,
         [1_000 * sum(seconds(one["end_time"], one["start_time"]) for one in job["attempts"])])
        for job in jobs if job["attempts"]
    ]  # fmt: skip

    for text in (json.dumps(jobs), json.dumps(jobs, indent=4), "\n".join(map(json.dumps, jobs))):
        assert facts(philly.convert(trace(text))) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_where_a_file_is_cut_into_pieces_changes_nothing(trace, monkeypatch, size):
    jobs = [philly_job(number, number, attempt(number, number + 1, 2)) for number in range(5)]
    jobs[1]["user"] = 'a \\ "brace" { } and é, 漢'
    path = trace(json.dumps(jobs, indent=1, ensure_ascii=False))
    whole = list(philly.convert(path))

    monkeypatch.setattr(files, "CHUNK_BYTES", size)

    assert list(philly.convert(path)) == whole
    assert whole[1]["user"] == jobs[1]["user"]


# ---------------------------------------------------------------- helios
HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


def test_a_helios_job_is_spread_over_its_nodes(trace):
    left = Left()
    path = trace(
        HELIOS,
        f"11,u1,vcA,16,10,2,COMPLETED,{stamp(1)},{stamp(2)},{stamp(4)},120,60",
        f"12,u2,vcB,0,3,1,FAILED,{stamp(0)},{stamp(0)},{stamp(0)},0,0",
        f"13,u2,vcB,1,1,1,CANCELLED,{stamp(2)},None,{stamp(3)},0,60",
        f"14,u2,vcB,0,0,1,COMPLETED,{stamp(2)},{stamp(2)},{stamp(3)},60,0",
    )

    lines = list(helios.convert(path, leave=left))

    assert [(line["queue"], line["stages"][0]["demand"]) for line in lines] == [
        ("vcA", {"cpu": "5", "gpu": "8"}),
        ("vcB", {"cpu": "3"}),
    ]
    assert facts(lines) == [("11", 60_000, [120_000, 120_000]), ("12", 0, [1])]
    assert left == {"job: never ran": 1, "job: asked for neither cores nor GPUs": 1}


def test_a_start_moves_time_0_and_leaves_out_what_came_before(trace):
    left = Left()
    rows = [f"{i},u,v,1,1,1,COMPLETED,{stamp(i)},{stamp(i)},{stamp(i + 1)},60,0" for i in (5, 1, 3)]

    lines = facts(helios.convert(trace(HELIOS, *rows), start=stamp(2).replace(" ", "T"), leave=left))

    assert lines == [("5", 180_000, [60_000]), ("3", 60_000, [60_000])]
    assert left == {"job: submitted before the start (--start)": 1}


# ---------------------------------------------------------------- sacct
SACCT = "JobID|User|Partition|State|Submit|Start|End|Elapsed|NNodes|NCPUS|AllocTRES|ReqMem|Timelimit"


def slurm(
    job="7", state="COMPLETED", submit=0, start=1, elapsed="00:02:00", nodes=1, cpus=4, tres="", mem="", limit=""
):
    begun = stamp(start).replace(" ", "T") if start is not None else "Unknown"
    ended = stamp(start + 2).replace(" ", "T") if start is not None else "Unknown"
    cells = [job, "ann", "gpu", state, stamp(submit).replace(" ", "T"), begun, ended, elapsed]
    return "|".join([*cells, str(nodes), str(cpus), tres, mem, limit])


@pytest.mark.parametrize(("row", "tasks", "demand"), [
    pytest.param({}, 1, {"cpu": "4"}, id="cores alone"),
    pytest.param({"nodes": 2, "mem": "4G"}, 2, {"cpu": "2", "memory": "2Gi"}, id="memory of the whole job"),
    pytest.param({"nodes": 2, "mem": "4Gn"}, 2, {"cpu": "2", "memory": "4Gi"}, id="memory a node"),
    pytest.param({"mem": "500Mc"}, 1, {"cpu": "4", "memory": "2000Mi"}, id="memory a core"),
    pytest.param({"nodes": 3, "cpus": 10}, 3, {"cpu": "3334m"}, id="a part is rounded up"),
    pytest.param({"tres": "billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,mem=64G,node=2", "mem": "1G"}, 2,
                 {"cpu": "4", "memory": "32Gi", "gpu": "2"}, id="what was allocated comes first"),
    pytest.param({"tres": "cpu=8,gres/gpu:a100=3,gres/gpumem=24G,mem=0,node=1"}, 1, {"cpu": "8", "gpu": "3"},
                 id="GPUs of a model"),
])  # fmt: skip
def test_what_a_slurm_job_held_is_divided_by_its_nodes(trace, tmp_path, row, tasks, demand):
    (line,) = sacct.convert(trace(SACCT, slurm(**row)))

    assert (line["stages"][0]["tasks"], line["stages"][0]["demand"]) == (tasks, demand)
    assert readable([line], tmp_path) == 1


@pytest.mark.parametrize(("text", "seconds"), [
    ("00:02:00", 120), ("1-02:03:04", 93_784), ("05:30", 330), ("00:00:01.500", 1),
])  # fmt: skip
def test_spans_of_slurm(trace, text, seconds):
    (line,) = sacct.convert(trace(SACCT, slurm(elapsed=text, limit="1-00:00:00")))

    assert line["stages"][0]["duration_ms"] == seconds * 1_000
    assert line["stages"][0]["estimate_ms"] == 86_400_000


def test_slurm_jobs_that_did_not_end_are_left_out_and_steps_too(trace):
    left = Left()
    path = trace(SACCT, slurm("1"), slurm("1.batch"), slurm("1.extern"), slurm("2", "CANCELLED by 7", start=None),
                 slurm("3", "RUNNING"), slurm("4_[5-9%2]", "PENDING", start=None), slurm("4_1", "TIMEOUT"),
                 slurm("1"))  # fmt: skip

    assert [job for job, _, _ in facts(sacct.convert(path, leave=left))] == ["1", "4_1", "1.2"]
    assert left == {"step: parts of jobs": 2, "job: never started": 1, "job: running when the list was made": 1,
                    "job: pending when the list was made": 1}  # fmt: skip


def test_any_columns_will_do_that_tell_when_and_how_long(trace):
    path = trace("Submit|Account|JobID|End|Start|", "1591745400|lab|9|1591745500|1591745440|")

    (line,) = sacct.convert(path, queue="Account")

    assert facts([line]) == [("9", 0, [60_000])]
    assert (line["queue"], line["stages"][0]["demand"]) == ("lab", {"cpu": "1"})


def test_slurm_accounts_agree_with_a_second_reading(trace):
    dice = Random(11)
    rows = [
        slurm(str(i), dice.choice(("COMPLETED", "FAILED", "RUNNING")), dice.randrange(999), 1_000,
              f"{dice.randrange(24):02}:{dice.randrange(60):02}:{dice.randrange(60):02}", dice.randrange(1, 5))
        for i in range(200)
    ]  # fmt: skip
    table = list(csv.DictReader(io.StringIO("\n".join([SACCT, *rows])), delimiter="|"))
    first = min(datetime.fromisoformat(row["Submit"]) for row in table)
    expected = []
    for row in table:
        hours, minutes, seconds = map(int, row["Elapsed"].split(":"))
        length = max(1, (hours * 3_600 + minutes * 60 + seconds) * 1_000)
        since = int((datetime.fromisoformat(row["Submit"]) - first).total_seconds()) * 1_000
        if row["State"] != "RUNNING":
            expected.append((row["JobID"], since, [length] * int(row["NNodes"])))

    assert facts(sacct.convert(trace(SACCT, *rows))) == expected


# ---------------------------------------------------------------- damage
@pytest.mark.parametrize(("name", "lines", "said"), [
    ("borg2019", [event(7, 0), event(7, "PARK")], "trace:2: type: has to be from 0 to 10"),
    ("borg2019", [event(7, 0), event(7, 3, index=-1)], "trace:2: instance_index: .* at least 0"),
    ("borg2019", [event(7, 0, resource_request={"cpus": "x"})], "trace:1: resource_request: cpus: has to be a number"),
    ("borg2019", ["time,type", "1,2"], "trace:1: has to name .* missing: collection_id, instance_index"),
    ("borg2019", ["{"], "trace:1: is no JSON"),
    ("philly", ["[", philly_job(1, 1) | {"submitted_time": "soon"}], "trace:2: submitted_time: .* date and time"),
    ("philly", ["[", '{"attempts": 5, "submitted_time": "2020-01-01 00:00:00"}'],
     "trace:2: attempts: has to be a list"),
    ("philly", ["[", '{"a": 1,', '"a": 2}'], "trace:2: a: stands twice"),
    ("philly", ["[", '{"a": [1,'], "trace:2: is no JSON: the file ends within it"),
    ("philly", ["hello"], "trace:1: is no list of JSON objects"),
    ("helios", ["job_id,user", "1,u"], "trace:1: .*missing: gpu_num"),
    ("helios", [HELIOS, "1,u,v,x,1,1,C,2020-01-01 00:00:00,2020-01-01 00:00:00,2020-01-01 00:00:01,1,0"],
     "trace:2: gpu_num: has to be a number"),
    ("sacct", ["JobID|State"], "trace:1: .* missing: Submit"),
    ("sacct", ["JobID|Submit", "1|2020-01-01T00:00:00"], "trace:2: has to have a column Elapsed"),
    ("sacct", [SACCT, slurm(elapsed="long")], "trace:2: Elapsed: has to be like 1-02:03:04"),
    ("sacct", [SACCT, slurm(tres="cpu=x")], "trace:2: AllocTRES: has to be like cpu=4"),
    ("sacct", [SACCT, slurm(mem="much")], "trace:2: ReqMem: has to be an amount"),
    ("sacct", [SACCT, slurm() + "|"], "trace:2: has to have 13 columns"),
])  # fmt: skip
def test_a_damaged_line_is_named(trace, name, lines, said):
    with pytest.raises(Damaged, match=said):
        list(IMPORTERS[name].convert(trace(*lines)))


@pytest.mark.parametrize("name", ["philly", "helios", "sacct"])
def test_a_start_is_needed_where_a_trace_cannot_be_read_twice(name):
    with pytest.raises(ValueError, match="start: has to be given where the trace comes from standard input"):
        IMPORTERS[name].convert("-")
    with pytest.raises(ValueError, match="start: has to be a date and time"):
        IMPORTERS[name].convert("none", start="tomorrow")
