"""Logs and workflows as they are found: older formats, odd lines, and a second, obvious reading of the same files."""

import json
from collections import Counter

import pytest

from services.simulator.workloads import swf, wfcommons
from services.simulator.workloads.files import Damaged

JOB = "7\t11\t-1\t60\t4\t-1\t-1\t4\t90\t-1\t1\t3\t1\t-1\t1\t-1\t-1\t-1"


@pytest.fixture
def written(tmp_path):
    """Writes bytes or text to a file and gives its path."""

    def write(content):
        path = tmp_path / "found"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


class Left(Counter):
    """What an importer says that it left out."""

    def __call__(self, why, what="job", count=1):
        self[f"{what}: {why}"] += count


def swf_line(**fields):
    values = dict.fromkeys(swf.FIELDS, "-1") | {"job": "7", "submit": "11", "runtime": "60", "processors": "4"} | fields
    return " ".join(values.values()) + "\n"


# ---------------------------------------------------------------- SWF
@pytest.mark.parametrize("text", [
    pytest.param(f"{JOB}\n", id="as the format has it"),
    pytest.param(f"{JOB}\tDAG-1\t3\n", id="columns beyond the 18th"),
    pytest.param(f"{JOB} ; ended by hand\n", id="a comment behind a job"),
    pytest.param(f"; UnixStartTime: 0\n{JOB}\n;\n", id="comments around it"),
    pytest.param(f"# a comment of another kind\n{JOB}\n", id="a comment with another sign"),
    pytest.param(f"{JOB}\r\n\r\n", id="lines that end as on Windows"),
    pytest.param(f"\ufeff{JOB}\n", id="a byte order mark"),
    pytest.param("id\tsubmit\twait\trun" + "\tx" * 14 + f"\n{JOB}\n", id="a line that names the columns"),
    pytest.param(JOB.replace("\t-1", "\t") + "\n", id="blank fields between tabs"),
    pytest.param(JOB.replace("\t60\t4", "\t60\t-1") + "\n", id="a width that only the request has"),
    pytest.param(JOB.replace("\t60\t", "\t60.0\t") + "\n", id="seconds with a fraction"),
    pytest.param(JOB.replace("\t", "   ") + "\n", id="columns that are lined up"),
])  # fmt: skip
def test_an_swf_job_is_read_however_its_log_is_written(written, text):
    (line,) = swf.convert(written(text))

    assert (line["job"], line["submit_ms"], line["user"]) == ("job-7", 11_000, "user-3")
    assert line["stages"] == [{"stage": "run", "after": [], "tasks": 4, "demand": {"cpu": "1"}, "duration_ms": 60_000,
                               "gang": True, "estimate_ms": 90_000}]  # fmt: skip


def test_further_columns_are_said_once_and_not_by_line(written):
    left = Left()

    assert len(list(swf.convert(written(f"{JOB} a b\n{JOB} a b\n{JOB}\n{JOB} a b c\n"), leave=left))) == 4
    assert left == {"column: beyond the 18th": 3}


def test_swf_lines_may_come_in_any_order_and_a_number_twice(written):
    lines = list(swf.convert(written(swf_line(submit="90") + swf_line(submit="5") + swf_line(job="0", submit="7"))))

    assert [(line["job"], line["submit_ms"]) for line in lines] == [
        ("job-7", 90_000),
        ("job-7.2", 5_000),
        ("job-0", 7_000),
    ]


@pytest.mark.parametrize(("options", "submitted"), [
    pytest.param({}, [85_000, 0, 10_000], id="from the earliest one, wherever it stands"),
    pytest.param({"start_s": 1_356_996_010}, [75_000, 0], id="from where it was asked for"),
])  # fmt: skip
def test_swf_submissions_that_are_dates_count_from_the_first(written, options, submitted):
    path = written("".join(swf_line(submit=str(1_356_996_000 + after)) for after in (85, 0, 10)))

    assert [line["submit_ms"] for line in swf.convert(path, **options)] == submitted


@pytest.mark.parametrize(("fields", "reason"), [
    pytest.param({"runtime": "-1"}, "runtime not known", id="runtime"),
    pytest.param({"processors": "-1"}, "number of processors not known", id="processors"),
    pytest.param({"runtime": "0", "status": "5"}, "cancelled before they ran", id="cancelled"),
    pytest.param({"status": "3"}, "parts of jobs that have a line as a whole", id="part"),
    pytest.param({"processors": "999999"}, "more than 200,000 processors", id="too wide"),
])  # fmt: skip
def test_swf_jobs_that_are_left_out_have_a_reason(written, fields, reason):
    left = Left()

    assert list(swf.convert(written(swf_line(**fields)), leave=left)) == []
    assert left == {f"job: {reason}": 1}


@pytest.mark.parametrize(("memory", "demand"), [
    ("processor", {"cpu": "1", "memory": "8Mi"}), ("job", {"cpu": "1", "memory": "2Mi"}), ("none", {"cpu": "1"}),
])  # fmt: skip
def test_swf_memory_is_of_a_processor_or_of_the_whole_job(written, memory, demand):
    (line,) = swf.convert(written(swf_line(memory_kb_asked="8192")), memory=memory)

    assert line["stages"][0]["demand"] == demand


def obvious_swf(text):
    """Jobs with a runtime and a width: number, submission, width, runtime; nothing but splitting and comparing."""
    for line in text.splitlines():
        cells = line.split(";")[0].split()
        if len(cells) >= 18 and cells[0].isdigit():
            width = max(int(cells[4]), 0) or int(cells[7])
            if int(cells[3]) >= 0 and width > 0:
                yield f"job-{cells[0]}", int(cells[1]) * 1000, width, max(1, int(cells[3]) * 1000)


def test_a_log_of_a_public_simulator_reads_as_it_does_to_the_eye(shared):
    path = shared / "found" / "imports" / "jaros1.swf"
    lines = list(swf.convert(str(path)))

    assert [
        (line["job"], line["submit_ms"], line["stages"][0]["tasks"], line["stages"][0]["duration_ms"]) for line in lines
    ] == list(obvious_swf(path.read_text()))
    assert len(lines) == 12


# ---------------------------------------------------------------- WfFormat
def of_version(version, *tasks, **fields):
    key = "jobs" if version in ("1.0", "1.1", "1.2") else "tasks"
    return json.dumps({"name": "w", "schemaVersion": version, "workflow": {key: list(tasks)}} | fields)


KB = {"runtime": 2, "memory": 3_000, "bytesRead": 660, "bytesWritten": 340, "cores": 2}
BYTES = {"runtimeInSeconds": 2, "memoryInBytes": 3_000_000, "readBytes": 660_000, "writtenBytes": 340_000, "cores": 2}


@pytest.mark.parametrize(("version", "measured"), [
    ("1.0", KB), ("1.1", KB), ("1.2", KB), ("1.3", KB), ("1.4", BYTES),
])  # fmt: skip
def test_workflows_of_earlier_formats_have_the_same_tasks(written, version, measured):
    first = {"name": "align_ID01", "type": "compute", "parents": []} | measured
    second = {"name": "merge_ID02", "type": "compute", "parents": ["align_ID01"]} | measured

    (line,) = wfcommons.convert(written(of_version(version, first, second)))

    demand = {"cpu": "2", "disk_io": "4M", "memory": "3Mi"}
    assert [(s["stage"], s["after"], s["durations_ms"], s["demand"]) for s in line["stages"]] == [
        ("align_ID01", [], [2_000], demand),
        ("merge_ID02", ["align_ID01"], [2_000], demand),
    ]


def task(number, name, **fields):
    return {"id": number, "name": name, "runtimeInSeconds": 1} | fields


@pytest.mark.parametrize("tasks", [
    pytest.param([task("1", "a"), task("2", "b", parents=["1"])], id="parents by id"),
    pytest.param([task("1", "a"), task("2", "b", parents=["a"])], id="parents by name"),
    pytest.param([task("1", "a", children=["b"]), task("2", "b")], id="children alone"),
    pytest.param([task("1", "a", children=["2"]), task("2", "b", parents=["a"])], id="both, once each"),
])  # fmt: skip
def test_who_waits_for_whom_is_read_as_each_writer_has_it(written, tasks):
    (line,) = wfcommons.convert(written(of_version("1.4", *tasks)))

    assert [(stage["stage"], stage["after"]) for stage in line["stages"]] == [("1", []), ("2", ["1"])]


def test_a_task_without_a_runtime_stays_for_those_that_wait_for_it(written):
    left = Left()
    path = written(of_version("1.4", {"id": "1", "name": "stage_in"}, task("2", "b", parents=["1"])))

    (line,) = wfcommons.convert(path, leave=left)

    assert [stage["durations_ms"] for stage in line["stages"]] == [[1], [1_000]]
    assert left == {"runtime: not known: their tasks last 1 ms": 1}


def test_groups_are_of_one_program_where_names_are_numbered(written):
    tasks = [task("1", "align_ID1"), task("2", "align_ID2"), task("3", "x", category="sort", parents=["1", "2"])]

    (line,) = wfcommons.convert(written(of_version("1.4", *tasks)), group=True)

    assert [(stage["stage"], stage["after"], stage["durations_ms"]) for stage in line["stages"]] == [
        ("align.0", [], [1_000, 1_000]),
        ("sort.1", ["align.0"], [1_000]),
    ]


@pytest.mark.parametrize(("document", "said"), [
    (of_version("1.7", task("1", "a")), "schemaVersion: has to be one of 1.0, .*1.6, is 1.7"),
    (of_version("1.4", task("1", "a"), task("2", "a"), task("3", "b", parents=["a"])), "is the name of 2 tasks"),
    (of_version("1.4", task("1", "a", children=["z"])), "children: 1 names z, which does not exist"),
    (of_version("1.4", task("1", "a", runtimeInSeconds="x")), "runtimeInSeconds: has to be a number"),
])  # fmt: skip
def test_a_damaged_workflow_is_named(written, document, said):
    with pytest.raises(Damaged, match=said):
        list(wfcommons.convert(written(document)))


def obvious_workflow(document):
    """Durations by task, and pairs of who waits for whom, of a document of format 1.4."""
    tasks = document["workflow"]["tasks"]
    ids = {task["name"]: task["id"] for task in tasks} | {task["id"]: task["id"] for task in tasks}
    edges = {(ids[parent], task["id"]) for task in tasks for parent in task.get("parents", [])}
    edges |= {(task["id"], ids[child]) for task in tasks for child in task.get("children", [])}
    return {task["id"]: max(1, round(task["runtimeInSeconds"] * 1000)) for task in tasks}, edges


@pytest.mark.parametrize(("name", "count"), [
    ("bacass-dirt02-001.json", 11), ("peg-1000genome-chameleon-2ch-100k-001.json", 52),
])  # fmt: skip
def test_public_workflow_runs_keep_tasks_times_and_order(shared, name, count):
    path = shared / "found" / "imports" / name
    durations, edges = obvious_workflow(json.loads(path.read_text()))
    (line,) = wfcommons.convert(str(path))

    assert len(line["stages"]) == count
    assert {stage["stage"]: stage["durations_ms"] for stage in line["stages"]} == {
        task: [duration_ms] for task, duration_ms in durations.items()
    }
    assert {(parent, stage["stage"]) for stage in line["stages"] for parent in stage["after"]} == edges
