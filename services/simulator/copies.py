"""What copies of slow tasks were worth in a simulated run, and what they cost."""

from services.simulator.attempts import Run, SimJob
from services.simulator.result import CopiesResult
from services.simulator.schedule import AttemptOutcome


class Copies:
    """`started`: copies in all. An attempt of a copied task that did not end it was in vain, be it the copy or not."""

    def __init__(self) -> None:
        self.started = 0
        self._won = 0
        self._in_vain: dict[str, int] = {}  # By resource, base units x ms.

    def note_end(self, job: SimJob, run: Run, outcome: AttemptOutcome, time: int) -> None:
        """Attempts of a job that has had copies have ended."""
        copied = job.copied or {}
        stage = job.graph.stages[job.graph.position[run.grant.stage]]
        for index in range(run.first, run.first + run.count):
            if (stage.stage, index) not in copied:
                continue
            if outcome == "succeeded":
                self._won += run.grant.why == "speculative"
                continue
            for kind, amount in stage.demand.items():
                self._in_vain[kind] = self._in_vain.get(kind, 0) + amount * (time - run.start_ms)

    def result(self) -> CopiesResult:
        """For simulate's JSON result: how many copies started, how many of them ended their task, and what attempts of
        copied tasks held in vain, in base units x seconds (docs/simulation.md)."""
        in_vain = {kind: amount // 1_000 for kind, amount in sorted(self._in_vain.items())}
        return {"started": self.started, "won": self._won, "in_vain": in_vain}
