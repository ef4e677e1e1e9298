"""What tasks count for in scheduling: what they ask for, or less where their job's admission says so. One rule for
every core that reads demands (docs/jobs.md).
"""

from dataclasses import replace

from schemas import JobAdmitted, JobSpec

_last: list[tuple[JobAdmitted, JobSpec]] = []
"""The last answer: the cores of one process fold each admission one after the other."""


def counted_spec(body: JobAdmitted) -> JobSpec:
    """The spec of an admitted job in which each demand is what tasks of the stage count for; the spec as it was
    submitted where all of them count for what they ask for.
    """
    if not body.counted:
        return body.spec
    known = _last[0] if _last else None
    if known is not None and known[0] is body:
        return known[1]
    counted = {each.stage: each.demand for each in body.counted}
    stages = [
        replace(stage, demand={**stage.demand, **counted[stage.stage]}) if stage.stage in counted else stage
        for stage in body.spec.stages
    ]
    spec = replace(body.spec, stages=stages)
    _last[:] = [(body, spec)]
    return spec
