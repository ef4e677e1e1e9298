"""`python -m tests.faults --seeds N`: plays fresh seeds, printed first; `--seed S` plays one, `--trace` tells it."""

import argparse
import secrets
import sys

from tests.faults.batch import play_beside, smallest
from tests.faults.checks import check
from tests.faults.plan import Plan, draw
from tests.faults.world import Report, run

SEED_MAX = 1 << 32


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 1 where something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="in how many processes")
    parser.add_argument("--seed", type=int, help="the first; without it a fresh one, which is printed")
    parser.add_argument("--trace", action="store_true", help="tell what happens, with the services' own lines")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a smaller plan that fails")
    asked = parser.parse_args(arguments)
    if asked.seed is not None and asked.trace:
        return _tell(draw(asked.seed))
    first = secrets.randbelow(SEED_MAX) if asked.seed is None else asked.seed
    count = 1 if asked.seed is not None and "--seeds" not in (arguments or sys.argv) else asked.seeds
    print(f"seeds {first} to {first + count - 1}", flush=True)
    batch = play_beside(first, count, asked.jobs, _said)
    print(batch.text())
    if batch.failed and not asked.no_shrink:
        plan = smallest(batch.failed[0])
        print(f"\nthe smallest plan that was found for seed {plan.seed}:")
        return _tell(plan)
    return int(bool(batch.failed))


def _said(report: Report) -> None:
    if report.wrong:
        print(f"seed {report.plan.seed} {report.digest}: {report.wrong[0]}")
        print(f"  again: python -m tests.faults --seed {report.plan.seed} --trace", flush=True)
    elif report.plan.seed % 100 == 0:
        print(f"seed {report.plan.seed} {report.digest}", flush=True)


def _tell(plan: Plan) -> int:
    print(f"nodes {plan.nodes}, standbys {plan.standbys}, {plan.shards} shards, {plan.rates}, {plan.knobs}")
    for job in plan.jobs:
        print(f"{job.at_ms:>7} ms: {job.spec}, {job.outcome}, cancelled at {job.cancel_ms}")
    for fault in plan.faults:
        print(f"{fault}")
    report = run(plan, verbose=True, check=check)
    print("\n".join(report.story))
    for wrong in report.wrong:
        print(f"WRONG {wrong}")
    return int(bool(report.wrong))


if __name__ == "__main__":
    sys.exit(main())
