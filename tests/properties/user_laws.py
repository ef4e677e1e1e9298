"""Laws of queues in which only so many tasks of one user run at a time, worked out plainly from what cores keep."""

from largesse.log.snapshots import dump, load
from schemas import Queue
from schemas.queue_tree import upwards, walk
from services.fairness.core.demand import recount
from services.fairness.core.user_demand import cut_users


def limits_users(queues):
    """Whether only so many tasks of one user run at a time somewhere."""
    return queues is not None and any(each.user_running_max for _, each in walk(queues))


def user_of(cell, name):
    """Whose job it is or was: names are taken once in these histories."""
    return next(r.body.spec.user for r in cell.records if r.type == "JobAdmitted" and r.body.spec.job == name)


def running_of_users(cell):
    """By path of a queue and user, how many attempts hold room there."""
    running = {}
    for held in (each for held_here in cell.leftover.held.values() for each in held_here.values()):
        for path in upwards(held.queue):
            running[path, held.user] = running.get((path, held.user), 0) + 1
            assert held.user == user_of(cell, held.job)
    return running


def check_user_tasks(cell, grown):
    """No more tasks of a user run than may: `grown` tells which jobs got tasks in the round."""
    limits = {path: each.user_running_max for path, each in walk(cell.admission.queues or Queue(""))}
    if not any(limits.values()):
        return
    jobs = [cell.leftover.jobs[name] for name in grown if name in cell.leftover.jobs]
    took = {(path, job.user) for job in jobs for path in upwards(job.queue)}
    for (path, user), count in running_of_users(cell).items():
        # After a limit was lowered more run than may: then none starts.
        assert not limits.get(path) or count <= limits[path] or (path, user) not in took


def places_left(cell, name):
    """How many tasks more of a job's user may start in its queue."""
    if not limits_users(cell.admission.queues):
        return 1 << 30
    running, limits = running_of_users(cell), dict(walk(cell.admission.queues))
    job, user = cell.leftover.jobs[name], user_of(cell, name)
    found = [(limits[path].user_running_max, running.get((path, user), 0)) for path in upwards(job.queue)]
    return min([most - count for most, count in found if most is not None], default=1 << 30)


def check_counted_anew(cell):
    """What fairness counts is what it would be if it counted anew."""
    if not limits_users(cell.admission.queues):
        return
    kept, anew = (load(type(cell.fairness), dump(cell.fairness)) for _ in range(2))
    recount(anew)
    cut_users(kept)
    cut_users(anew)
    found, counted = ({kind: n for kind, n in each.demands.total.items() if n} for each in (kept, anew))
    assert found == counted
    for name in ("leaves", "waits"):
        assert getattr(kept.demands, name) == getattr(anew.demands, name), name
    assert kept.users.tasks == anew.users.tasks
