"""Other placements for `benchmarks.openb`, written from their formulas; nothing here is shared with the cores.

- `fgd`: fragmentation gradient descent (Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 4): the node
  and device where the expected fragmentation grows least. The fragmentation of a node for a task is all free GPU where
  the task cannot run, else the free GPU on devices that it cannot use; expected over the pods of the trace.
- `best_fit`: the node with the least left, as the weighted sum over resources of parts of the largest node.
- `tight`: fullest device, least free GPU, least CPU; pods without GPU first where there are none.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np

WHOLE: Final = 1_000
NO_ROOM: Final = float("inf")


class Pod(NamedTuple):
    """What a pod asks for. `models`: those it runs on; none: any."""

    cpu: int
    memory: int
    gpu: int
    models: tuple[str, ...] = ()


@dataclass(slots=True)
class Node:
    """A node and what it has free."""

    model: str
    cpu: int
    memory: int
    devices: list[int] = field(default_factory=list)

    @property
    def gpu(self) -> int:
        return sum(self.devices)


def devices_for(pod: Pod, node: Node) -> list[tuple[int, int]] | None:
    """Which devices a pod takes: whole ones, or the fullest that fits; as (position, milli). None: no room."""
    if node.cpu < pod.cpu or node.memory < pod.memory or (pod.models and node.model not in pod.models):
        return None
    if not pod.gpu:
        return []
    if pod.gpu < WHOLE:
        fitting = [(free, at) for at, free in enumerate(node.devices) if free >= pod.gpu]
        return [(min(fitting)[1], pod.gpu)] if fitting else None
    free = [at for at, milli in enumerate(node.devices) if milli == WHOLE][: pod.gpu // WHOLE]
    return [(at, WHOLE) for at in free] if len(free) == pod.gpu // WHOLE else None


class Fragmentation:
    """F_n(M) for a mix of pods with their parts, by the state of a node."""

    def __init__(self, mix: dict[Pod, int]) -> None:
        pods, total = [pod for pod in mix if pod.gpu], sum(mix.values())
        self._models = [pod.models for pod in pods]
        self._cpu = np.array([pod.cpu for pod in pods])
        self._gpu = np.array([pod.gpu for pod in pods])
        self._part = np.array([mix[pod] / total for pod in pods])
        self._runs_on: dict[str, np.ndarray] = {}
        self._known: dict[tuple[str, int, tuple[int, ...]], float] = {}

    def of(self, model: str, cpu: int, devices: list[int]) -> float:
        """Expected fragmentation, in milli-GPUs. (Pods without GPU add the same wherever a pod goes: left out.)"""
        key = model, cpu, tuple(sorted(devices))
        if key not in self._known:
            self._known[key] = self._work_out(model, cpu, np.array(devices))
        return self._known[key]

    def _work_out(self, model: str, cpu: int, devices: np.ndarray) -> float:
        if model not in self._runs_on:
            self._runs_on[model] = np.array([not models or model in models for models in self._models])
        gpu, free = self._gpu, devices.sum()
        least = np.minimum(gpu, WHOLE)
        usable = devices[:, None] >= least[None, :]
        enough = usable.sum(axis=0) >= np.maximum(1, gpu // WHOLE)
        runs = enough & (self._cpu <= cpu) & self._runs_on[model]
        unusable = np.where(usable, 0, devices[:, None]).sum(axis=0)
        return float((self._part * np.where(runs, unusable, free)).sum())


class Placement:
    """Nodes, and for each kind of pod the score of every node, worked out anew where a node has changed. The least
    score is the best, the first node of equals.
    """

    def __init__(self, name: str, nodes: list[Node], mix: dict[Pod, int]) -> None:
        self.nodes = nodes
        self.score: Callable[[Pod, Node], float] = getattr(self, f"_{name}")
        self.fragmentation = Fragmentation(mix)
        self._most_cpu = max(node.cpu for node in nodes)
        self._most_memory = max(node.memory for node in nodes)
        self._most_gpu = max(node.gpu for node in nodes)
        self._scores: dict[Pod, np.ndarray] = {}
        self._seen: dict[Pod, int] = {}
        self._changed: list[int] = []

    def place(self, pod: Pod) -> tuple[int, list[tuple[int, int]]] | None:
        """Puts a pod on the best node: its number, and its devices."""
        scores = self._scores.get(pod)
        changed = range(len(self.nodes)) if scores is None else dict.fromkeys(self._changed[self._seen[pod] :])
        if scores is None:
            scores = self._scores[pod] = np.full(len(self.nodes), NO_ROOM)
        for number in changed:
            node = self.nodes[number]
            scores[number] = NO_ROOM if devices_for(pod, node) is None else self.score(pod, node)
        self._seen[pod] = len(self._changed)
        best = int(scores.argmin())
        if scores[best] == NO_ROOM:
            return None
        node = self.nodes[best]
        taken = self.devices(pod, node)
        self.move(best, pod, taken, -1)
        return best, taken

    def devices(self, pod: Pod, node: Node) -> list[tuple[int, int]]:
        """The devices that a pod takes on its node."""
        if self.score == self._fgd and 0 < pod.gpu < WHOLE:
            return [(min(self._fractions(pod, node))[1], pod.gpu)]
        found = devices_for(pod, node)
        assert found is not None, "a node without room was chosen"
        return found

    def move(self, number: int, pod: Pod, taken: list[tuple[int, int]], sign: int) -> None:
        """A pod starts on a node (-1), or has ended there."""
        node = self.nodes[number]
        node.cpu += sign * pod.cpu
        node.memory += sign * pod.memory
        for at, milli in taken:
            node.devices[at] += sign * milli
        self._changed.append(number)

    def _fractions(self, pod: Pod, node: Node) -> list[tuple[float, int]]:
        """By device that a fraction fits on: the fragmentation if it is placed there, and its position."""
        found = []
        for at, free in enumerate(node.devices):
            if free >= pod.gpu:
                devices = list(node.devices)
                devices[at] -= pod.gpu
                found.append((self.fragmentation.of(node.model, node.cpu - pod.cpu, devices), at))
        return found

    def _fgd(self, pod: Pod, node: Node) -> float:
        if 0 < pod.gpu < WHOLE:
            after = min(self._fractions(pod, node))[0]
        else:
            devices = list(node.devices)
            for at, milli in devices_for(pod, node) or []:
                devices[at] -= milli
            after = self.fragmentation.of(node.model, node.cpu - pod.cpu, devices)
        return after - self.fragmentation.of(node.model, node.cpu, node.devices)

    def _best_fit(self, pod: Pod, node: Node) -> float:
        left = (node.cpu - pod.cpu) / self._most_cpu + (node.memory - pod.memory) / self._most_memory
        return left + (node.gpu - pod.gpu) / self._most_gpu

    def _tight(self, pod: Pod, node: Node) -> float:
        if not pod.gpu:
            return bool(node.devices) * 1e12 + node.gpu * 1e7 + node.cpu
        left = min(free for free in node.devices if free >= pod.gpu) - pod.gpu if pod.gpu < WHOLE else 0
        return left * 1e12 + node.gpu * 1e7 + node.cpu


def starts(placement: Placement, pods: list[tuple[float, float, Pod]], *, strict: bool = False) -> list[float | None]:
    """When each pod starts; None: never. `pods` as (arrival, how long it runs, what it asks for), in order of arrival.
    Who waits is tried in that order whenever a pod arrives or ends; `strict`: nobody goes before who waits longest.
    """
    begun: list[float | None] = [None] * len(pods)
    ends: list[tuple[float, int, int, list[tuple[int, int]]]] = []
    waits: dict[int, bool] = {}
    arrived = 0
    while arrived < len(pods) or (ends and waits):
        if arrived < len(pods) and (not ends or pods[arrived][0] <= ends[0][0]):
            now, tried = pods[arrived][0], [arrived]
            tried = list(waits) if strict and waits else tried
            waits[arrived] = True
            arrived += 1
        else:
            now, ended, number, taken = heappop(ends)
            placement.move(number, pods[ended][2], taken, 1)
            tried = list(waits)
        hopeless: dict[Pod, bool] = {}
        for pod in tried:
            asked = pods[pod][2]
            found = None if asked in hopeless else placement.place(asked)
            if found is not None:
                del waits[pod]
                begun[pod] = now
                heappush(ends, (now + pods[pod][1], pod, *found))
            elif strict:
                break
            else:
                hopeless[asked] = True
    return begun
