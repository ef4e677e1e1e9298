"""What an attempt used, by what the kernel says of its control group, or of its processes."""

import os

import pytest

from services.agent.meter import KILLED, Meter

EVENTS = "low 0\nhigh 0\nmax 12\noom 1\noom_kill {kills}\n"


def meter(folder, *, kills=0, memory=True, limit_mib=None, **files):
    """Of an attempt whose control group is a plain folder."""
    (folder / "memory.events").write_text(EVENTS.format(kills=kills))
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    groups = {"v2": str(folder), "memory": memory}
    return Meter({"resident_mib": limit_mib, "memory_mib": 100 if memory else None, "groups": groups})


def test_a_group_holds_what_no_file_stands_behind(tmp_path):
    seen = meter(tmp_path, limit_mib=3, memory_stat=f"anon {3 << 20}\nfile {9 << 20}\nshmem {1 << 20}\n")

    assert seen.look(os.getpid()) == 4
    assert seen.peak_kib == 4 << 10


def test_an_attempt_within_its_limit_is_left_alone_and_looked_at_often_once_it_is_near(tmp_path):
    seen = meter(tmp_path, limit_mib=4, memory_stat=f"anon {1 << 20}\nshmem 0\n")
    assert (seen.look(os.getpid()), seen.is_near()) == (None, False)

    (tmp_path / "memory.stat").write_text(f"anon {4 << 20}\nshmem 0\n")

    assert (seen.look(os.getpid()), seen.is_near()) == (None, True)


def test_without_a_group_the_processes_of_the_session_are_looked_at():
    seen = Meter({"resident_mib": 1, "groups": None})

    assert (seen.look(os.getsid(0)) or 0) > 1


@pytest.mark.parametrize("exit_code", [KILLED, 1], ids=["killed itself", "under a shell that says something else"])
def test_whom_the_kernel_ended_at_its_limit_was_ended_for_memory(tmp_path, exit_code):
    seen = meter(tmp_path, kills=1)

    assert seen.killed_for_memory(exit_code) == "used more than the 100 MiB of memory it may"
    assert seen.peak_kib == 100 << 10


def test_a_kill_in_a_group_without_a_limit_is_the_machines(tmp_path):
    assert meter(tmp_path, kills=1, memory=False).killed_for_memory(KILLED) == (
        "the machine had no more memory, and the kernel ended it"
    )


def test_who_ends_by_itself_was_not_ended_for_memory(tmp_path):
    assert meter(tmp_path).killed_for_memory(1) is None


def test_cpu_time_is_that_of_the_group(tmp_path):
    seen = meter(tmp_path, cpu_stat="usage_usec 1234567\nuser_usec 1\n")

    assert seen.usage(1_000_000)["cpu_ms"] == 1_234


@pytest.mark.parametrize(("refused", "full"), [(0, False), (3, True)])
def test_a_task_that_was_refused_processes_is_known(tmp_path, refused, full):
    assert meter(tmp_path, pids_events=f"max {refused}\n").full_of_processes() is full


def peak_of(folder, looks, run_ms):
    """The peak of CPU of an attempt whose group had used so many milliseconds at these moments."""
    seen = meter(folder)
    for at_ms, used_ms in looks:
        (folder / "cpu.stat").write_text(f"usage_usec {used_ms * 1_000}\n")
        seen.note_cpu(at_ms, os.getpid())
    return seen.usage(run_ms * 1_000)["cpu_peak"]


@pytest.mark.parametrize(
    ("looks", "run_ms", "peak"),
    [
        pytest.param([], 5_000, 1, id="nothing was used: the least there is"),
        pytest.param([(1_000, 900), (2_000, 2_001)], 2_000, 1_001, id="shorter than a window: the mean, rounded up"),
        pytest.param(
            [(0, 0), (10_000, 1_000), (15_000, 11_000), (20_000, 21_000), (60_000, 22_000)],
            60_000,
            2_000,
            id="the most over any window, not the mean",
        ),
        pytest.param(
            [(at, 4_000 if at > 5_000 else 0) for at in range(0, 30_001, 1_000)],
            30_000,
            400,
            id="a burst counts in part",
        ),
        pytest.param(
            [(0, 0), (9_999, 9_999), (10_100, 99_990), (20_000, 100_000)],
            100_000,
            9_000,
            id="a look just after another is left out",
        ),
    ],
)
def test_the_peak_of_cpu_is_the_most_over_ten_seconds(tmp_path, looks, run_ms, peak):
    assert peak_of(tmp_path, looks, run_ms) == peak


def test_the_mean_of_a_run_of_less_than_a_millisecond_is_as_exact_as_that_of_a_long_one(tmp_path):
    seen = meter(tmp_path, cpu_stat="usage_usec 300\n")

    assert seen.usage(400) == {"peak_mib": 0, "cpu_ms": 0, "cpu_peak": 750}


def test_what_is_kept_of_looks_does_not_grow_with_the_run(tmp_path):
    seen = meter(tmp_path, cpu_stat="usage_usec 5\n")
    for at_ms in range(0, 1_000_000, 1_000):
        seen.note_cpu(at_ms, os.getpid())

    assert len(seen._cpu_seen) == 11


def test_without_a_group_the_cpu_of_the_session_is_counted():
    seen, before = Meter({"resident_mib": 1, "groups": None}), sum(os.times()[:2])
    while sum(os.times()[:2]) < before + 0.05:
        pass

    assert seen.cpu_us(os.getsid(0)) >= (before + 0.04) * 1_000_000
