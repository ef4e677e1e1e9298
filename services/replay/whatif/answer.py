"""The answer to a what-if as a document, as `largesse replay --what-if --json` prints it (docs/what-if.md)."""

from collections.abc import Iterator

from schemas.wording import plural
from services.replay.whatif.run import Answer, Question, World
from services.simulator.metrics import spread
from services.simulator.result import JobRow, Spread

SHOWN_MS_MIN = 1
"""A median delay below this goes without saying."""


def document_of(answer: Answer, question: Question) -> dict[str, object]:
    """Times in ms of log time; times of completion count from the submission."""
    jobs = [_job(seq, answer) for seq in sorted({*answer.recorded.jobs, *answer.decided.jobs})]
    return {
        "from_seq": answer.fork,
        "begun_seq": answer.begun,
        "changed": changed_of(answer, question),
        "recorded": measures_of(answer.recorded),
        "decided": {**measures_of(answer.decided), "digest": answer.digest},
        "both": _both(jobs),
        "queues": _groups(jobs, "queue"),
        "classes": _groups(jobs, "class"),
        "users": _groups(jobs, "user"),
        "jobs": jobs,
        "explained": list(_explained(answer)),
    }


def changed_of(answer: Answer, question: Question) -> dict[str, list[object]]:
    """What is different: of every name what it was, and what it is."""
    before = answer.told.policy
    found: dict[str, list[object]] = {
        name: [getattr(before, name), value]
        for name, value in question.values.items()
        if getattr(before, name) != value
    }
    if question.queues is not None:
        found["queues"] = ["as recorded", "as given"]
    if question.slower_permille != 1_000:
        found["slower"] = [1, question.slower_permille / 1_000]
    for name, listed in (
        ("nodes added", [node.name for node in question.added]),
        ("nodes removed", question.removed),
        ("jobs left out", question.without_jobs),
        ("users left out", question.without_users),
    ):
        if listed:
            found[name] = [[], listed]
    return found


def measures_of(world: World) -> dict[str, object]:
    """Of one of the two worlds, as a simulation's result has them."""
    measured, (met, of) = world.measured, world.deadlines
    found: dict[str, object] = {
        "jobs": measured["jobs"],
        "refused": len(measured["rejected"]),
        "makespan_ms": measured["makespan_ms"],
        "jct_ms": measured["jct_ms"],
        "waiting_ms": measured["waiting_ms"],
        "jain": measured["jain"],
        "utilisation": measured["utilisation"],
    }
    if of:
        found["deadlines"] = {"met": met, "of": of}
    return found


def _job(seq: int, answer: Answer) -> dict[str, object]:
    recorded, decided = answer.recorded.jobs.get(seq), answer.decided.jobs.get(seq)
    row = recorded or decided
    assert row is not None
    return {
        "job": row["job"],
        "queue": row["queue"],
        "class": row["class"],
        "user": answer.users.get(seq, ""),
        "submit_ms": row["submit_ms"],
        "recorded_ms": _took_ms(recorded),
        "decided_ms": _took_ms(decided),
        "recorded_waiting_ms": _waited_ms(recorded),
        "decided_waiting_ms": _waited_ms(decided),
        "recorded_outcome": recorded and recorded["outcome"],
        "decided_outcome": decided and decided["outcome"],
    }


def _took_ms(row: JobRow | None) -> int | None:
    return None if row is None or row["end_ms"] is None else row["end_ms"] - row["submit_ms"]


def _waited_ms(row: JobRow | None) -> int | None:
    return None if row is None or row["start_ms"] is None else row["start_ms"] - row["submit_ms"]


def _both(jobs: list[dict[str, object]]) -> dict[str, object]:
    """Like with like: times of the jobs that have ended in both worlds, and how many ended in one of them alone."""
    alone = {"recorded": 0, "decided": 0}
    both = []
    for job in jobs:
        ended = [world for world in alone if job[f"{world}_ms"] is not None]
        if len(ended) == 1:
            alone[ended[0]] += 1
        elif ended:
            both.append(job)
    return {
        "jobs": len(both),
        "recorded_alone": alone["recorded"],
        "decided_alone": alone["decided"],
        "recorded": _times(both, "recorded"),
        "decided": _times(both, "decided"),
    }


def _times(jobs: list[dict[str, object]], world: str) -> dict[str, Spread]:
    """In one world, of jobs that have ended in both; of waiting, where they have started in both."""
    started = [job for job in jobs if None not in (job["recorded_waiting_ms"], job["decided_waiting_ms"])]
    return {
        "jct_ms": spread(_numbers(jobs, f"{world}_ms")),
        "waiting_ms": spread(_numbers(started, f"{world}_waiting_ms")),
    }


def _numbers(jobs: list[dict[str, object]], name: str) -> list[int]:
    return [number for job in jobs if isinstance(number := job[name], int)]


def _groups(jobs: list[dict[str, object]], by: str) -> list[dict[str, object]]:
    """Jobs that have ended in both worlds, together: mean times of completion, and by how much all of them changed.
    None where all are of one group."""
    groups: dict[str, list[tuple[int, int]]] = {}
    for job in jobs:
        before, after = job["recorded_ms"], job["decided_ms"]
        if isinstance(before, int) and isinstance(after, int):
            groups.setdefault(str(job[by] or ""), []).append((before, after))
    if len(groups) < 2 and by != "queue":
        return []
    return [
        {
            by: name,
            "jobs": len(times),
            "recorded_ms": round(sum(before for before, _ in times) / len(times), 3),
            "decided_ms": round(sum(after for _, after in times) / len(times), 3),
            "later_ms": sum(max(0, after - before) for before, after in times),
            "earlier_ms": sum(max(0, before - after) for before, after in times),
        }
        for name, times in sorted(groups.items())
    ]


def _explained(answer: Answer) -> Iterator[str]:
    """Where this world can be no more than likely."""
    told, outcomes = answer.told, answer.outcomes
    if told.over:
        yield f"jobs that had ended before, and stand in neither world: {told.over:,}"
    if outcomes.guessed:
        text = f"how long {plural(outcomes.guessed, 'attempt')} would have run is not in the log"
        yield f"{text}: each takes what others of its stage took, or its estimate, and at least twice what it had run"
    late_ms = sorted(outcomes.delays_ms)
    if late_ms and (median_ms := late_ms[len(late_ms) // 2]) >= SHOWN_MS_MIN:
        text = f"tasks held their places {median_ms} ms longer than they ran (median)"
        yield f"{text}: starts and reports take as long here"
    if answer.end_ms > told.time:
        later = [row for row in answer.decided.jobs.values() if row["end_ms"] is not None and row["end_ms"] > told.time]
        if later:
            yield f"jobs that end behind the end of the log, in a cell to which nothing more comes: {len(later):,}"
    stuck = [row for row in answer.decided.jobs.values() if row["outcome"] is None]
    if stuck:
        yield f"jobs that never end, since what they wait for does not come: {len(stuck):,}"
    if outcomes.shared:
        yield "nodes were shared in the log (slots): how long commands ran there includes that they slowed each other"
    if told.refused:
        yield f"messages left out that the cell refused, since the log has not what they said: {told.refused:,}"
    if told.proposed:
        yield f"plans left out that the solver had improved, since they belong to the recorded ones: {told.proposed:,}"
    unlike = [seq for seq in answer.decided.jobs if seq not in answer.recorded.jobs]
    if unlike:
        yield f"jobs admitted that the log refused: {len(unlike):,}"
    gone = [seq for seq in answer.recorded.jobs if seq not in answer.decided.jobs and seq not in answer.left_out]
    if gone:
        yield f"jobs refused that the log admitted: {len(gone):,}"
