"""`python -m services.simulator [--seed N] [--preset P]`: one drawn history under two hash seeds: digests must agree.

Exit codes: 0 they do, 1 they do not, 3 a run broke. The seed is printed first, so that a failure can be repeated.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from typing import get_args

from schemas.presets import Preset
from schemas.wording import plural
from services.simulator.drawn import drawn_cluster
from services.simulator.drawn_reservations import KNOBS, drawn_arrivals
from services.simulator.run import Options, simulate

HASH_SEEDS = ("1", "2")
SEED_MAX = 2**32 - 1
PRESETS: tuple[Preset, ...] = get_args(Preset)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m services.simulator", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, help="repeats one history; without it a fresh one is drawn")
    one = "only under this one; may be repeated"
    parser.add_argument("--preset", action="append", choices=PRESETS, metavar="P", help=one)
    parser.add_argument("--once", action="store_true", help="run in this process only, and print what came out as JSON")
    asked = parser.parse_args()
    seed = secrets.randbelow(SEED_MAX) if asked.seed is None else asked.seed
    presets = asked.preset or PRESETS
    if asked.once:
        print(json.dumps(_run(seed, presets)))
        return 0
    print(f"seed {seed} (make sim SEED={seed} repeats it)", flush=True)
    outcomes = []
    for hash_seed in HASH_SEEDS:
        command = [sys.executable, "-m", "services.simulator", "--once", "--seed", str(seed)]
        command += [f"--preset={preset}" for preset in presets]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=False)
        if done.returncode != 0:
            print(f"the run under hash seed {hash_seed} broke", file=sys.stderr)
            return 3
        outcomes.append(json.loads(done.stdout))
    for preset, first in outcomes[0].items():
        print(
            f"{preset:9} {plural(first['jobs'], 'job')}, {first['rejected']} refused,"
            f" {plural(first['rounds'], 'round')}, {first['digest']}"
        )
    if outcomes[0] != outcomes[1]:
        different = [preset for preset in presets if outcomes[0][preset] != outcomes[1][preset]]
        print(f"the hash seed reached a decision of {', '.join(different)}: seed {seed}", file=sys.stderr)
        return 1
    print("the same under two hash seeds")
    return 0


def _run(seed: int, presets: Sequence[Preset]) -> dict[str, dict[str, object]]:
    cluster = drawn_cluster(seed)
    outcomes: dict[str, dict[str, object]] = {}
    for preset in presets:
        knobs = KNOBS if preset == "rayon" else {}
        result = simulate(drawn_arrivals(seed, preset), cluster, Options({"preset": preset, "seed": seed, **knobs}))
        counts = {"jobs": result["jobs"], "rejected": len(result["rejected"]), "rounds": result["rounds"]}
        outcomes[preset] = {**counts, "digest": result["digest"]}
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
