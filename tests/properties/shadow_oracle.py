"""When jobs end in a virtual cluster under DRF, worked out plainly: one task at a time, all from the beginning."""

from dataclasses import dataclass, field

from schemas.quantities import SHARE_UNITS


@dataclass
class Virtual:
    """A job: `at`: the kind that it waits for more of, None while it waits for its turn."""

    spec: object
    left: dict[str, int]
    waits: dict[str, int]
    paths: dict[str, int]
    running: list[tuple[int, str]] = field(default_factory=list)
    at: str | None = None

    def ready(self):
        """Stages that could start a task, the longest way to the end first."""
        stages = [
            each
            for each in self.spec.stages
            if self.waits[each.stage]
            and not any(self.left[up] for up in each.after)
            and (each.running_max is None or [name for _, name in self.running].count(each.stage) < each.running_max)
        ]
        return sorted(stages, key=lambda each: -self.paths[each.stage])

    def share(self, capacity):
        held = dict.fromkeys(capacity, 0)
        demands = {each.stage: each.demand for each in self.spec.stages}
        for _, name in self.running:
            for kind, amount in demands[name].items():
                held[kind] += amount
        return max(amount * SHARE_UNITS // capacity[kind] for kind, amount in held.items())


def _path(spec, name):
    own = next(each for each in spec.stages if each.stage == name)
    own = own.estimate_ms * -(-own.tasks // min(own.tasks, own.running_max or own.tasks))
    return own + max((_path(spec, each.stage) for each in spec.stages if name in each.after), default=0)


def _virtual(spec):
    tasks = {each.stage: each.tasks for each in spec.stages}
    return Virtual(spec, dict(tasks), dict(tasks), {name: _path(spec, name) for name in tasks})


def ends(arrivals, capacity):
    """By number of the job, when it ends. `arrivals`: (when, spec) in order of admission."""
    jobs, over, now_ms = {}, {}, 0
    waiting = list(enumerate(arrivals))
    while waiting or jobs:
        moments = [end for job in jobs.values() for end, _ in job.running] + [when for _, (when, _) in waiting]
        now_ms = min(moments)
        for number, job in list(jobs.items()):
            stages_before = {each.stage for each in job.ready()}
            ended = [name for end, name in job.running if end == now_ms]
            job.running = [each for each in job.running if each[0] != now_ms]
            for name in ended:
                job.left[name] -= 1
            if {each.stage for each in job.ready()} - stages_before:
                job.at = None
            if not any(job.left.values()):
                over[number] = now_ms
                del jobs[number]
        _serve(jobs, capacity, now_ms)
        for number, (when, spec) in list(waiting):
            if when == now_ms:
                jobs[number] = _virtual(spec)
                waiting.remove((number, (when, spec)))
        _serve(jobs, capacity, now_ms)
    return over


def _serve(jobs, capacity, now_ms):
    while (number := _next(jobs, capacity)) is not None:
        job, free = jobs[number], _free(jobs, capacity)
        fitting = [each for each in job.ready() if _lacks(each, free) is None]
        if fitting:
            job.waits[fitting[0].stage] -= 1
            job.running.append((now_ms + fitting[0].estimate_ms, fitting[0].stage))
            job.at = None
        else:
            job.at = _lacks(job.ready()[0], free)


def _next(jobs, capacity):
    free = _free(jobs, capacity)
    ranks = {number: (job.share(capacity), number) for number, job in jobs.items() if job.ready()}
    able = []
    for number, rank in ranks.items():
        job = jobs[number]
        if job.at is not None:
            first = min(ranks[other] for other in ranks if jobs[other].at == job.at)
            if rank != first or _lacks(job.ready()[0], free) == job.at:
                continue
        able.append(rank)
    return min(able)[1] if able else None


def _free(jobs, capacity):
    free = dict(capacity)
    for job in jobs.values():
        demands = {each.stage: each.demand for each in job.spec.stages}
        for _, name in job.running:
            for kind, amount in demands[name].items():
                free[kind] -= amount
    return free


def _lacks(stage, free):
    return next((kind for kind in sorted(free) if stage.demand.get(kind, 0) > free[kind]), None)
