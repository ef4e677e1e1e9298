"""The cores of a cell that answer rounds, in one process: which there are, and in which order they are asked."""

from largesse.rounds import Deciders, Hosted
from services.altruism import core as altruism
from services.altruism.core import State as AltruismState
from services.estimator import core as estimator
from services.estimator.core import State as EstimatorState
from services.fairness import core as fairness
from services.fairness.core import State as FairnessState
from services.leftover import core as leftover
from services.leftover.core import State as LeftoverState
from services.planner import core as planner
from services.planner.core import State as PlannerState


def deciders_of(
    of_fairness: FairnessState,
    of_altruism: list[AltruismState],
    of_leftover: LeftoverState,
    of_estimator: EstimatorState,
    of_planner: PlannerState,
) -> Deciders:
    """Every core with a state of it; altruism with one for each shard."""
    return Deciders(
        Hosted(fairness, of_fairness),
        [Hosted(altruism, state, state.shard) for state in of_altruism],
        Hosted(leftover, of_leftover),
        [Hosted(estimator, of_estimator), Hosted(planner, of_planner)],
    )


def started(shards: int) -> Deciders:
    """The same, with states in which nothing is folded."""
    of_altruism = [altruism.start(shard, shards) for shard in range(shards)]
    return deciders_of(fairness.start(), of_altruism, leftover.start(), estimator.start(), planner.start())
