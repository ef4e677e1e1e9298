"""What a task spoils: the room for GPUs that is lost to those that the cell has to run.

The measure is the expected fragmentation of fragmentation gradient descent (Weng et al., USENIX ATC 2023). On a node
all free GPU is lost to a class whose tasks cannot run there, be it for want of another resource; else what is free on
devices that its tasks cannot use. Expected over the mix of classes that wait or have lately been admitted, it grows as
a task is placed: by how much decides. Beside it stands a price of scarce models: three quarters of the GPU that the
task takes, times the pressure on nodes like these, which is how much of them is asked for by classes that may run only
on some nodes, each spread evenly over those.

All in whole numbers. A state of a node (what its labels admit, what is free, devices in order) is valued once.
"""

from typing import Final

import numpy as np

from schemas.quantities import Vector, on_devices
from services.leftover.placement.node_choice import GROWTH_MAX, WHOLE
from services.leftover.placement.task_class import NodeRoom, TaskClass

Mix = list[tuple[Vector, dict[str, str], int]]
"""Classes as (demand, labels, weight); those that ask for GPUs count."""

State = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Of a node: its kind, what is free by resource position, what devices have free in ascending order."""

PRICE_PERMILLE: Final = 750
"""Of what a task takes, times the pressure: what it costs to take it on a scarce model (DECISIONS 127)."""

WEIGHT_BITS: Final = 10
STEP_BITS: Final = 3
"""Growth counts in steps of 8 milli-GPUs: what is nearly equal is decided by how full devices and nodes are."""

_ZERO: Final = 1 << 21  # No growth: placed so that it is never negative.
_NOWHERE: Final[State] = (-1, (), ())
_STATES_MAX: Final = 1 << 16
_AT_ONCE: Final = 256
"""So many states are valued together at most."""

ENTRIES_MAX: Final = 1 << 20
"""Once what is remembered of nodes for all classes has more entries, that of the class that began first is dropped."""


class Fragments:
    """A mix of classes, and what each state of a node loses to it. Replaced when the mix changes."""

    def __init__(self, nodes: list[NodeRoom], position: dict[str, int], mix: Mix) -> None:
        """`position`: of each resource. Gives each node the number of its kind."""
        parts = [part for part in mix if part[0].get("gpu") and all(kind in position for kind in part[0])]
        gpus = [demand["gpu"] for demand, _, _ in parts]
        total = sum([weight for _, _, weight in parts])
        weights = [max(1, (weight << WEIGHT_BITS) // max(1, total)) for _, _, weight in parts]
        kinds = self._number(nodes, sorted({key for _, labels, _ in parts for key in labels}))
        admits = [[_admits(node.labels, labels) for _, labels, _ in parts] for node in kinds]
        self._allowed = np.array(admits, bool).reshape(len(kinds), len(parts))
        self._weights = np.array(weights, np.int64)
        self._least = np.array([gpu if gpu < WHOLE else WHOLE for gpu in gpus], np.int64)
        self._count = np.array([max(1, gpu // WHOLE) for gpu in gpus], np.int64)
        self._needs: list[tuple[int, np.ndarray]] = []
        for kind, p in position.items():
            if kind != "gpu" and any(demand.get(kind) for demand, _, _ in parts):
                self._needs.append((p, np.array([demand.get(kind, 0) for demand, _, _ in parts], np.int64)))
        self._price = _prices(nodes, admits, weights, gpus)
        self._lost: dict[State, int] = {}
        self._of_nodes: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def _number(self, nodes: list[NodeRoom], keys: list[str]) -> list[NodeRoom]:
        """Numbers the kinds of nodes by the values of these labels; returns one node of each."""
        numbers: dict[tuple[str | None, ...], int] = {}
        kinds: list[NodeRoom] = []
        for node in nodes:
            values = tuple([node.labels.get(key) for key in keys])
            if values not in numbers:
                numbers[values] = len(kinds)
                kinds.append(node)
            node.kind = numbers[values]
        return kinds

    def growths(self, task: TaskClass, nodes: list[NodeRoom]) -> list[int]:
        """By node, each with room for one task: what is lost if it starts there, with the price, in steps; `_ZERO` is
        none.
        """
        states: list[tuple[State, State]] = []
        unknown: dict[State, bool] = {}
        for node in nodes:
            if not node.devices:
                states.append((_NOWHERE, _NOWHERE))
                continue
            before = (node.kind, tuple(node.free), tuple(sorted(node.devices)))
            after = self._after(task, node)
            states.append((before, after))
            if before not in self._lost:
                unknown[before] = True
            if after not in self._lost:
                unknown[after] = True
        if unknown:
            self._learn(states, list(unknown))
        found: list[int] = []
        for before, after in states:
            if before[0] < 0:  # No device there.
                found.append(_ZERO)
                continue
            grown = self._lost[after] - self._lost[before] + self._price[before[0]] * task.gpu
            found.append(min(max(0, (grown >> (WEIGHT_BITS + STEP_BITS)) + _ZERO), GROWTH_MAX))
        return found

    def _after(self, task: TaskClass, node: NodeRoom) -> State:
        """The state of a node once a task has started there."""
        free, devices = list(node.free), node.devices
        for p, amount, _ in task.needs:
            free[p] -= amount
        if task.gpu:
            devices = list(devices)
            taken = on_devices(task.gpu, devices)
            assert taken is not None, f"{node.name}: no device for {task.gpu} milli"
            for at, milli in taken:
                devices[at] -= milli
        return node.kind, tuple(free), tuple(sorted(devices))

    def of_all(self, task: TaskClass, nodes: list[NodeRoom], numbers: np.ndarray, turns: np.ndarray) -> np.ndarray:
        """The same for some of all nodes, by their numbers. What was found for the class before is remembered as long
        as a node stays as it is; `turns`: by node, how often it has changed.
        """
        known = self._of_nodes.get(task.index)
        if known is None:
            if (len(self._of_nodes) + 1) * len(nodes) > ENTRIES_MAX and self._of_nodes:
                del self._of_nodes[next(iter(self._of_nodes))]
            known = np.zeros(len(nodes), np.int64), np.full(len(nodes), -1, np.int64)
            self._of_nodes[task.index] = known
        growths, seen = known
        stale = numbers[seen[numbers] != turns[numbers]]
        if len(stale):
            growths[stale] = self.growths(task, [nodes[number] for number in stale.tolist()])
            seen[stale] = turns[stale]
        of_these: np.ndarray = growths[numbers]
        return of_these

    def _learn(self, states: list[tuple[State, State]], unknown: list[State]) -> None:
        """Values states. Those of the call in hand stay known."""
        if len(self._lost) > _STATES_MAX:
            used = [state for pair in states for state in pair if state in self._lost]
            self._lost = {state: self._lost[state] for state in used}
        for first in range(0, len(unknown), _AT_ONCE):
            some = unknown[first : first + _AT_ONCE]
            for state, lost in zip(some, self._valued(some), strict=True):
                self._lost[state] = lost

    def _valued(self, states: list[State]) -> list[int]:
        """What is lost on nodes in these states, in milli-GPUs times 2^WEIGHT_BITS."""
        free = np.array([state[1] for state in states], np.int64)
        devices = np.zeros((len(states), max([len(state[2]) for state in states])), np.int64)
        for i, state in enumerate(states):
            devices[i, : len(state[2])] = state[2]
        devices = np.maximum(devices, 0)
        runs = self._allowed[[state[0] for state in states]]
        for p, needs in self._needs:
            runs &= free[:, p, None] >= needs
        usable = devices[:, :, None] >= self._least
        runs &= usable.sum(axis=1) >= self._count
        unusable = np.where(usable, 0, devices[:, :, None]).sum(axis=1)
        lost = np.where(runs, unusable, devices.sum(axis=1)[:, None])
        values: list[int] = (lost @ self._weights).tolist()
        return values


def _admits(labels: dict[str, str], asked: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in asked.items())


def _prices(nodes: list[NodeRoom], admits: list[list[bool]], weights: list[int], gpus: list[int]) -> list[int]:
    """By kind of node, the price of a milli-GPU there, in milli-GPUs times 2^WEIGHT_BITS. `admits`: by kind and class,
    whether its labels admit the class.
    """
    have = [0] * len(admits)
    for node in nodes:
        have[node.kind] += sum(node.sizes)
    asked = sum([weight * gpu for weight, gpu in zip(weights, gpus, strict=True)])
    prices = [0] * len(admits)
    for m, weight in enumerate(weights):
        able = sum([have[kind] for kind in range(len(have)) if admits[kind][m]])
        if 0 < able < sum(have):
            pressure = (weight * gpus[m] * sum(have) << WEIGHT_BITS) // (asked * able)
            for kind in range(len(have)):
                if admits[kind][m]:
                    prices[kind] += pressure
    return [price * PRICE_PERMILLE // 1_000 for price in prices]
