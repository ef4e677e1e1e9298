"""The forward pass: a job's remaining graph, packed greedily inside its share (CARBYNE, section 3.2, line 3).

Its length is the job's `T_k`.
"""

from services.altruism.planning.orders import Scores
from services.altruism.planning.sweep import Sweep
from services.altruism.planning.work import Amounts, Packing, Work


def pack(work: Work, share: Amounts, scores: Scores) -> Packing:
    """Packs what waits beside what runs; `share` has to take the largest waiting task (`widened`).

    What runs may hold more than the share: then nothing starts that needs of it until enough has ended.
    """
    missing = [len(each) for each in work.parents()]
    left = [work.left(at) for at in range(len(missing))]
    sweep = Sweep(work, share, scores, work.children, left, missing)
    sweep.hold()
    sweep.run()
    assert not sweep.ready, "a task is larger than the share"
    return Packing(sweep.batches, sweep.now_ms, sweep.steps)
