"""A pod of Kubernetes as the tasks of a stage: what it asks for, where it may run, and what its container starts."""

from fractions import Fraction

from schemas.quantities import Vector, add_amounts, parse_quantity
from services.simulator.workloads.files import Damaged
from services.simulator.workloads.source import Leave, Line, Row

_GPUS = ("gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")  # Whose names do not end in /gpu.
_OURS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "disk"} | dict.fromkeys(_GPUS, "gpu")
_POD_KEPT = ("containers", "initContainers", "nodeSelector", "restartPolicy", "terminationGracePeriodSeconds",
             "dnsPolicy", "schedulerName", "securityContext")  # fmt: skip
_CONTAINER_KEPT = ("name", "image", "resources", "command", "args", "env", "workingDir", "imagePullPolicy",
                   "terminationMessagePath", "terminationMessagePolicy")  # fmt: skip


def labels_of(pod: Row) -> Line:
    """The node selector."""
    if "nodeSelector" not in pod:
        return {}
    selector = pod.row("nodeSelector")
    return {"labels": {name: selector.text(name) for name in selector.names()}}


def leave_pod(pod: Row, leave: Leave) -> None:
    """Tells of fields of a pod and its containers that have no counterpart."""
    for row, kept in ((pod, _POD_KEPT), *((container, _CONTAINER_KEPT) for container in pod.rows("containers"))):
        for name in row.names():
            if name not in kept:
                leave(name[:60], "field")


def demand_of(pod: Row, leave: Leave) -> Vector:
    """What a pod holds: the sum of its containers, or its largest init container where that is more."""
    demand: Vector = {}
    for container in pod.rows("containers"):
        add_amounts(demand, _of_container(container, leave), 1)
    for container in pod.rows("initContainers") if "initContainers" in pod else []:
        for kind, amount in _of_container(container, leave).items():
            demand[kind] = max(amount, demand.get(kind, 0))
    if not demand:
        leave("no requests: taken as one core", "request")
    return demand or {"cpu": 1000}


def _of_container(container: Row, leave: Leave) -> Vector:
    demand: Vector = {}
    if "resources" not in container:
        return demand
    resources = container.row("resources")
    amounts: dict[str, tuple[Row, str]] = {}
    for field in ("limits", "requests"):  # What is not requested is requested as its limit.
        if field in resources:
            inner = resources.row(field)
            amounts |= {name: (inner, inner.text(name)) for name in inner.names()}
    for name, (inner, text) in amounts.items():
        kind = "gpu" if name.endswith("/gpu") else _OURS.get(name)
        if kind is None:
            leave(f"of {name[:60]}", "request")
            continue
        try:
            amount = _quantity(kind, text)
        except ValueError as fault:
            raise Damaged(inner.where, name, str(fault)) from None
        if amount:
            demand[kind] = demand.get(kind, 0) + amount
    return demand


def _quantity(kind: str, text: str) -> int:
    """Base units. Kubernetes takes exponents, and small amounts of bytes that ours take for a mistake."""
    if text.replace(".", "", 1).isdigit() and kind in ("memory", "disk"):
        return -(-Fraction(text) // (1 << 20))
    base, _, power = text.lower().partition("e")
    if power.lstrip("+-").isdigit() and base.replace(".", "", 1).isdigit() and len(power) < 4:
        return _quantity(kind, str(int(Fraction(base) * Fraction(10) ** int(power))))
    return parse_quantity(kind, text, round_up=True)


def command_of(pod: Row, leave: Leave) -> Line:
    """The command of a pod's only container, its variables and folder."""
    containers = pod.rows("containers")
    if len(containers) > 1:
        leave("of pods with several containers", "command", len(containers))
        return {}
    (container,) = containers
    if "image" in container:
        leave("tasks are started as they are", "image")
    found: Line = {}
    if words := [word for field in ("command", "args") if field in container for word in container.texts(field)]:
        if "command" in container:
            found["command"] = words
        else:
            leave("without a command, which the image has", "argument", len(words))
    env: dict[str, str] = {}
    for variable in container.rows("env") if container.value("env") else []:
        if "valueFrom" in variable:
            leave("from the cluster", "variable")
        else:
            env[variable.text("name")] = str(variable.value("value") or "")
    if env:
        found["env"] = env
    return found | ({"cwd": container.text("workingDir")} if "workingDir" in container else {})
