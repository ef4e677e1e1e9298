"""What jobs that wait are served by under `largesse`, against the product worked out plainly in each round."""

import pytest

from services.leftover import core
from services.leftover.core.asks import does_ask
from services.leftover.core.shadow import keys
from services.simulator.drawn import drawn_cluster, drawn_jobs
from services.simulator.outages import Outage
from services.simulator.run import Options, simulate

PERMILLES = (keys.SOONER_PERMILLE, keys.SOONER_LARGE_PERMILLE)


def is_right(shadow, job, now_ms):
    """Whether the key of a job follows from its end and its work, all at most a quarter behind."""
    seq = job.admitted
    claim, end_ms, work = shadow.claims[seq], shadow.ends[seq], keys.work_left(shadow, job)
    if end_ms & keys.STALE:
        return True  # It is not known yet when it ends.
    in_shadow_ms, moved_ms = claim.end_ms - shadow.works[seq].joined_ms, abs(claim.end_ms - end_ms)
    left = sorted(max(keys.LEFT_MS_MIN, claim.end_ms - in_shadow_ms * each // 1_000 - now_ms) for each in PERMILLES)
    part, step_ms = keys.RENEWED_PART, keys.RENEWED_STEP_MS
    least = keys._rounded(claim.work * left[0] ** 2)
    most = keys._rounded(claim.work * ((left[1] + step_ms) * part // (part - 1) + 2) ** 2)
    return (
        (not moved_ms or moved_ms * (part - 1) < claim.end_ms - now_ms + part * step_ms)
        and (claim.work == work or 0 < (claim.work - work) * keys.RENEWED_PART < claim.work)
        and least <= claim.key <= most
    )


@pytest.mark.skipif(keys.__file__.endswith(".so"), reason="compiled, the core calls what it was compiled with")
@pytest.mark.parametrize("seed", [2, 5])
def test_whoever_waits_is_served_by_a_key_of_now(seed, monkeypatch):
    wrong, checked, decide = [], [0], core.decide

    def checks(state, opened):
        named = {ask.job: True for record in opened.upstream["asks"] for ask in record.body.jobs if ask.asks}
        for name, job in state.jobs.items():
            if (name in named or does_ask(job)) and job.admitted in state.shadow.claims:
                checked[0] += 1
                if not is_right(state.shadow, job, state.opened_ms):
                    wrong.append((state.opened_ms, name))
        return decide(state, opened)

    monkeypatch.setattr(core, "decide", checks)
    cluster = drawn_cluster(seed)
    values = {"preset": "largesse", "round_gap_ms": 1_000, "shadow_steps": 100_000}
    options = Options(values, outages=[Outage(cluster.nodes[0].name, 20_000, 60_000)])
    simulate(drawn_jobs(seed)[:40], cluster, options)

    assert checked[0] > 500
    assert not wrong
