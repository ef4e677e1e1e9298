"""How one agent is set up: its node's name and folder, what it offers, how it treats tasks."""

import grp
import os
import pwd
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from largesse.bridges import read_bridges
from largesse.mqtt.settings import is_mqtt
from largesse.settings import PREFIX, Settings, SettingWrong
from largesse.tls import Peers, read_peers
from schemas import Device, Vector
from schemas.edge.base import sorted_map
from schemas.edge.nodes import HTTPS, PORT_MAX, NodeReport, check_address, check_host, offered
from schemas.edge.read import Malformed
from schemas.edge.strict_json import loads
from schemas.edge.validated import validated
from services.agent.cgroups import CpuLimit
from services.agent.container_settings import CONTAINER_VARIABLES, ContainerSettings, read_containers
from services.agent.devices.declared import read_declared
from services.agent.folders import Kept
from services.agent.troubles import Room

MemoryLimit = Literal["auto", "resident", "address_space", "none"]
AtEnd = Literal["keep", "leave"]
NUMBER_MAX = 10**9
ROOT = 0
USER_NUMBER_MAX = 2**32 - 3
"""The two above it mean nobody to the kernel."""
USER_NUMBERS = "100000-2000000000"
ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104 - named, not listened to

VARIABLES = {
    "NODE": ("the host's name", "name of the node"),
    "NODE_DATA": ("largesse-agent/NODE", "folder for this agent's data; no other agent may use it"),
    "NODE_OFFER": ("as measured", "capacity, labels and devices of the node, as a JSON object"),
    "NODE_DEVICES": (
        "none",
        "GPUs of the node: auto (found by NVML, which the extra `devices` needs), a file that lists them, or none",
    ),
    "NODE_DEVICE_HEALTH": (
        "none",
        "file in which a script says how devices are, a line each: INDEX|UUID ok|drain|broken WHY",
    ),
    "NODE_PASS_ENV": ("none", "variables of the agent that tasks get too, separated by commas"),
    "NODE_SECRETS": (
        "none",
        "folder with secrets for tasks: a file for each, those of a queue in a folder of its path",
    ),
    "NODE_CGROUP": ("auto", "control groups for tasks: auto, off, or the path of a delegated group of cgroup v2"),
    "NODE_CPU_LIMIT": (
        "hard",
        "with control groups: hard (a task never gets more CPU than it requests), share (more where it is free), none",
    ),
    "NODE_MEMORY_LIMIT": (
        "auto",
        "auto (by control group, else as resident), resident (checked every second), address_space (RLIMIT_AS), none",
    ),
    "NODE_TASK_PIDS": ("4096", "with control groups: most processes and threads of a task; 0: no limit"),
    "NODE_OUTPUT_MIB": (
        "256",
        "how much of each output stream of a task is kept: the first half, and the end of the rest",
    ),
    "NODE_INPUTS_MIB": (
        "10240",
        "how much the results of earlier stages may take that are copied here from other nodes, for one job",
    ),
    "NODE_AT_END": (
        "keep",
        "when the agent stops: keep (tasks continue, the next agent takes them over) or leave (they run elsewhere)",
    ),
    "NODE_CUT_OFF_SECONDS": (
        "600",
        "an agent that cannot reach the bus suspends its tasks, and ends them after so long; 0: never",
    ),
    "NODE_SILENT_SECONDS": (
        "0",
        "tasks run on for so long without word from their agent; 0: while the cell waits for it (`node_lease_ms`)",
    ),
    "NODE_ROOM_MIB": ("64", "with less free disk space the node takes no new tasks; 0: no limit"),
    "NODE_ROOM_INODES": ("1000", "with fewer free inodes the node takes no new tasks; 0: no limit"),
    "NODE_KEPT_RUNS": ("20000", "most runs of ended jobs whose output and folders are kept; the oldest go first"),
    "NODE_KEPT_MIB": ("16384", "most disk space that they may take"),
    "NODE_KEPT_INODES": ("1000000", "most files and folders that they may have"),
    "NODE_KEPT_HOURS": ("168", "how long they are kept"),
    "NODE_KEPT_FREE_MIB": (
        "1024",
        "fewer are kept while less disk space is free (on a small disk: less than a tenth)",
    ),
    "NODE_BEHIND_RUNS": ("5000", "with more ended runs that are still to be removed the node takes no new tasks"),
    "NODE_HOST": ("the host's name", "name or address at which tasks on other nodes reach tasks of gangs on this one"),
    "NODE_PORTS": (
        "21000-28999",
        "ports that tasks of gangs are given, FIRST-LAST, which nothing else on this machine listens on; none: none",
    ),
    "TASK_USER": (
        "the agent's user",
        "user as whom tasks run, or numbers FIRST-LAST, each job as one of its own; needs an agent that runs as root",
    ),
    "ADVERTISE": (
        "the host's name and LARGESSE_METRICS_PORT; over MQTT none",
        "HOST:PORT at which the gateway and other agents reach the output and results of tasks; without, bridges do",
    ),
    "BRIDGES": (
        "none",
        "where bridges answer for nodes over MQTT, [https://]HOST:PORT with LARGESSE_METRICS_PORT, commas between",
    ),
    **CONTAINER_VARIABLES,
}
"""What only an agent reads, by name without the prefix: default and what it is. `read_node_settings` says more."""


@dataclass(frozen=True, slots=True)
class TaskUser:
    """As whom tasks run: a user of this machine, with its groups."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    def of(self, admitted: int) -> "TaskUser":
        """As whom tasks of a job run: all are one."""
        return self


@dataclass(frozen=True, slots=True)
class TaskUsers:
    """Numbers of users, from the first to the last, which nothing else on the machine has. No job reads what another
    one's tasks hold or leave."""

    first: int
    last: int

    def of(self, admitted: int) -> TaskUser:
        """As whom tasks of a job run that was admitted at this seq: whoever starts them, today or after a restart,
        comes to the same number, and only jobs that lie a multiple of the numbers apart share one."""
        number = self.first + admitted % (self.last - self.first + 1)
        return TaskUser(str(number), number, number, (number,), "/", "/bin/sh")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One node. Times in milliseconds.

    `archive`: the store with the cell's checkpoints (Settings).

    `capacity`: base units; empty: what the machine has, divided into `parts`. `data`: a folder of this agent alone.
    `cgroup`, `cpu_limit`, `task_pids`: as in VARIABLES; control groups are used where they can be made (cgroups.py).
    `memory_limit`, for tasks that ask for memory: `auto` is the control group's, or else `resident`, which looks every
    second, and more often near the limit, at what their processes hold and kills; `address_space` is the kernel's
    RLIMIT_AS on each process, exact, but it counts what is only reserved.
    `room`: free room on its disk below which the node takes no new tasks. `cut_off_ms`: an agent whose messages the bus
    has not taken for so long ends what runs here, which was suspended by then; 0: never. `silent_ms`: for how long
    tasks run on without word of an agent that the cell hears; 0: the cell's `node_lease_ms`. `alone`: the cell ends
    with the agent, so that what it leaves running waits for both. `kept`: limits of what ended jobs left, which is put
    away every `clear_ms`. `output_bytes`: kept of each stream of a task. `inputs_bytes`: of results that are copied
    here from other nodes for one job. `pass_env`: variables of the agent that tasks get too. `keep_running`: whether
    tasks run on when the agent is asked to end, for the next one to take them over. `leaves`: the agent then says that
    the node goes, and what it holds is run elsewhere at once. `departing`: the node is not run any more: its agent
    reports what has ended, ends the rest, and leaves. `address`: where the agent shows what tasks print and leave, as
    `[https://]HOST:PORT`; empty: nowhere. `peers`: its TLS among agents. `bridges`: where results of nodes over MQTT
    are asked for. `task_user`: as whom tasks run; None: as the agent's own user, who can write wherever the agent can.
    `secrets`: where secrets for tasks lie (task_secrets.py); None: nowhere.
    `host`: at which tasks on other nodes reach those here; `ports`: those that tasks of gangs are given, from the first
    to the last; 0: none. `find_devices`: `devices` are those that this machine is found to have.
    `device_health`: the file that says how they are; None: there is none. `containers`: as container_settings.py says.
    `cell`: its name, where that is known.
    """

    name: str
    data: Path
    partition: int = 0
    archive: str = ""
    capacity: Vector = field(default_factory=dict)
    parts: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    heartbeat_ms: int = 3_000
    report_flush_ms: int = 20
    stop_grace_ms: int = 5_000
    revoke_grace_ms: int = 30_000
    cgroup: str = "auto"
    cpu_limit: CpuLimit = "hard"
    memory_limit: MemoryLimit = "auto"
    task_pids: int = 4_096
    output_bytes: int = 256 << 20
    inputs_bytes: int = 10 << 30
    kept: Kept = field(default_factory=Kept)
    room: Room = field(default_factory=Room)
    cut_off_ms: int = 600_000
    silent_ms: int = 0
    alone: bool = False
    clear_ms: int = 1_000
    pass_env: tuple[str, ...] = ()
    keep_running: bool = True
    leaves: bool = False
    departing: bool = False
    address: str = ""
    bridges: tuple[str, ...] = ()
    peers: Peers | None = None
    task_user: TaskUser | TaskUsers | None = None
    host: str = "127.0.0.1"
    ports: tuple[int, int] = (21_000, 28_999)
    find_devices: bool = False
    secrets: Path | None = None
    device_health: Path | None = None
    containers: ContainerSettings = field(default_factory=ContainerSettings)
    cell: str = ""


def read_node_settings(settings: Settings, environment: Mapping[str, str] | None = None) -> NodeSettings:
    """A node from the environment. Raises SettingWrong.

    LARGESSE_NODE (default: the host's name), LARGESSE_NODE_DATA (default: largesse-agent/NODE), LARGESSE_NODE_OFFER (as
    in a report: `{"capacity": {"cpu": "4"}, "labels": {}, "devices": {"gpu": []}}`; without capacity: as measured),
    LARGESSE_NODE_DEVICES (`auto`, a file, or `none`),
    LARGESSE_NODE_CUT_OFF_SECONDS, LARGESSE_NODE_SILENT_SECONDS (whole numbers from 0), LARGESSE_NODE_PASS_ENV (names,
    commas between),
    LARGESSE_NODE_AT_END (`keep`: tasks run on; `leave`: they end, and are run elsewhere), LARGESSE_ADVERTISE
    (`HOST:PORT` at which others reach what LARGESSE_METRICS_PORT serves; default: that port at the host's name, or at
    the one address at which it is served, and over MQTT none), LARGESSE_BRIDGES, LARGESSE_NODE_HOST (a name or an
    address; default: the host's name),
    LARGESSE_TASK_USER (a user other than root, as whom tasks run, or FIRST-LAST; the agent has
    to run as root), and what `with_limits` reads.
    """
    environment = os.environ if environment is None else environment
    name = environment.get(f"{PREFIX}NODE") or socket.gethostname()
    if name.startswith("-"):
        raise SettingWrong(f"{PREFIX}NODE={name}: may not begin with -, as options of commands do")
    capacity, labels, devices = _offer(name, environment.get(f"{PREFIX}NODE_OFFER", "{}"))
    leaves = _one_of(AtEnd, "NODE_AT_END", environment.get(f"{PREFIX}NODE_AT_END", "keep")) == "leave"
    node = NodeSettings(
        name=name,
        data=Path(environment.get(f"{PREFIX}NODE_DATA") or Path("largesse-agent", name)),
        partition=settings.partition,
        archive=settings.archive,
        capacity=capacity,
        labels=labels,
        devices=devices,
        pass_env=tuple(word for word in environment.get(f"{PREFIX}NODE_PASS_ENV", "").split(",") if word),
        cut_off_ms=_number(environment, "NODE_CUT_OFF_SECONDS") * 1_000,
        silent_ms=_number(environment, "NODE_SILENT_SECONDS") * 1_000,
        keep_running=not leaves,
        leaves=leaves,
        address=_address(settings, environment.get(f"{PREFIX}ADVERTISE", "")),
        bridges=read_bridges(environment),
        peers=read_peers(settings),
        task_user=read_task_user(environment),
        host=_host(environment.get(f"{PREFIX}NODE_HOST") or socket.gethostname()),
        cell=settings.cell,
    )
    return with_limits(_with_devices(node, environment.get(f"{PREFIX}NODE_DEVICES") or "none"), environment)


def _with_devices(node: NodeSettings, text: str) -> NodeSettings:
    """The node with the devices of `auto`, a file, or none. Raises SettingWrong."""
    if text == "none":
        return node
    what = f"{PREFIX}NODE_DEVICES={text}"
    if node.devices or "gpu" in node.capacity:
        raise SettingWrong(f"{what}: {PREFIX}NODE_OFFER names GPUs as well: leave them out there")
    if text == "auto":
        return replace(node, find_devices=True)
    try:
        return replace(node, devices=read_declared(Path(text)))
    except OSError as error:
        raise SettingWrong(f"{what}: has to be auto, none or a file that can be read: {error.strerror}") from None
    except Malformed as fault:
        raise SettingWrong(f"{what}: {fault}") from None


def with_limits(node: NodeSettings, environment: Mapping[str, str] | None = None) -> NodeSettings:
    """The node with what the environment says of limits and secrets of its tasks, of what it keeps of them, and of
    free room on its disk. Raises SettingWrong.
    """
    environment = os.environ if environment is None else environment
    cgroup = environment.get(f"{PREFIX}NODE_CGROUP") or "auto"
    if cgroup not in ("auto", "off") and not cgroup.startswith("/"):
        raise SettingWrong(
            f"{PREFIX}NODE_CGROUP={cgroup}: has to be auto, off, or the absolute path of a control group"
        )
    health = environment.get(f"{PREFIX}NODE_DEVICE_HEALTH") or "none"
    return replace(
        node,
        cgroup=cgroup,
        cpu_limit=_option(CpuLimit, "NODE_CPU_LIMIT", environment),  # type: ignore[arg-type]
        memory_limit=_option(MemoryLimit, "NODE_MEMORY_LIMIT", environment),  # type: ignore[arg-type]
        task_pids=_number(environment, "NODE_TASK_PIDS"),
        output_bytes=_number(environment, "NODE_OUTPUT_MIB", least=1) << 20,
        inputs_bytes=_number(environment, "NODE_INPUTS_MIB") << 20,
        kept=_kept(environment),
        room=Room(_number(environment, "NODE_ROOM_MIB") << 20, _number(environment, "NODE_ROOM_INODES")),
        ports=_ports(environment.get(f"{PREFIX}NODE_PORTS") or VARIABLES["NODE_PORTS"][0]),
        device_health=None if health == "none" else Path(health).absolute(),
        containers=read_containers(environment),
        secrets=Path(folder) if (folder := environment.get(f"{PREFIX}NODE_SECRETS", "")) else None,
    )


def read_task_user(environment: Mapping[str, str] | None = None) -> TaskUser | TaskUsers | None:
    """What LARGESSE_TASK_USER names; None where it is not set. Raises SettingWrong."""
    name = (os.environ if environment is None else environment).get(f"{PREFIX}TASK_USER", "")
    if not name:
        return None
    what = f"{PREFIX}TASK_USER={name}"
    if os.geteuid() != ROOT:
        raise SettingWrong(f"{what}: only root can run tasks as another user: start it as root, or unset this")
    if (numbers := re.fullmatch(r"([0-9]{1,10})-([0-9]{1,10})", name)) is not None:
        return _task_users(what, int(numbers[1]), int(numbers[2]))
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise SettingWrong(f"{what}: there is no such user on this machine") from None
    if entry.pw_uid == ROOT:
        raise SettingWrong(f"{what}: has to be a user other than root")
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return TaskUser(name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell)


def _task_users(what: str, first: int, last: int) -> TaskUsers:
    """Raises SettingWrong where a task could become root, or somebody whom this machine knows."""
    if not ROOT < first <= last <= USER_NUMBER_MAX:
        raise SettingWrong(f"{what}: has to be FIRST-LAST from 1 to {USER_NUMBER_MAX}, like {USER_NUMBERS}")
    known = [each.pw_name for each in pwd.getpwall() if first <= each.pw_uid <= last]
    known += [each.gr_name for each in grp.getgrall() if first <= each.gr_gid <= last]
    if known:
        raise SettingWrong(
            f"{what}: {known[0]} of this machine has one of these numbers: take others, like {USER_NUMBERS}"
        )
    return TaskUsers(first, last)


def _option(options: Any, name: str, environment: Mapping[str, str]) -> str:
    return _one_of(options, name, environment.get(f"{PREFIX}{name}") or VARIABLES[name][0])


def _one_of(options: Any, name: str, text: str) -> str:
    if text not in get_args(options):
        raise SettingWrong(f"{PREFIX}{name}={text}: has to be one of {', '.join(get_args(options))}")
    return text


def _kept(environment: Mapping[str, str]) -> Kept:
    return Kept(
        age_ms=_number(environment, "NODE_KEPT_HOURS") * 3_600_000,
        bytes=_number(environment, "NODE_KEPT_MIB") << 20,
        runs=_number(environment, "NODE_KEPT_RUNS"),
        inodes=_number(environment, "NODE_KEPT_INODES"),
        free_bytes=_number(environment, "NODE_KEPT_FREE_MIB") << 20,
        behind_max=_number(environment, "NODE_BEHIND_RUNS"),
    )


def _number(environment: Mapping[str, str], name: str, least: int = 0) -> int:
    """A whole number from `least`; its default as VARIABLES has it."""
    text = environment.get(f"{PREFIX}{name}") or VARIABLES[name][0]
    if not text.isascii() or not text.isdecimal() or not least <= int(text) <= NUMBER_MAX:
        raise SettingWrong(f"{PREFIX}{name}={text}: has to be a whole number from {least} to {NUMBER_MAX}")
    return int(text)


def _host(text: str) -> str:
    try:
        check_host(text, "")
    except Malformed as fault:
        raise SettingWrong(f"{PREFIX}NODE_HOST={text}: {fault}") from None
    return text


def _ports(text: str) -> tuple[int, int]:
    """FIRST-LAST, or `none`."""
    if text == "none":
        return 0, 0
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
    first, last = (int(match[1]), int(match[2])) if match is not None else (0, 0)
    if not 1 <= first <= last <= PORT_MAX:
        raise SettingWrong(f"{PREFIX}NODE_PORTS={text}: has to be FIRST-LAST, like 21000-28999, or none")
    return first, last


def _address(settings: Settings, advertised: str) -> str:
    """Where others reach what this process serves over HTTP; empty where it serves nothing, or where only a bridge may
    reach it.
    """
    if not settings.metrics_port:
        if advertised:
            raise SettingWrong(f"{PREFIX}ADVERTISE={advertised}: nothing is served: set {PREFIX}METRICS_PORT")
        return ""
    if is_mqtt(settings.bus) and not advertised:
        return ""
    host = settings.metrics_host
    host = socket.gethostname() if host in ANY_HOST else f"[{host}]" if ":" in host else host
    address = advertised or f"{host}:{settings.metrics_port}"
    if settings.peer_cert_file and not address.startswith(HTTPS):
        address = HTTPS + address
    try:
        check_address(address, "")
    except Malformed as fault:
        raise SettingWrong(f"{PREFIX}ADVERTISE={advertised}: {fault}") from None
    return address


def _offer(name: str, text: str) -> tuple[Vector, dict[str, str], list[Device]]:
    try:
        document: Any = loads(text.encode())
        if not isinstance(document, dict):
            raise Malformed("", "has to be an object")
        report = validated(NodeReport, {"capacity": {}, **document, "node": name, "epoch": "-"})
        if not report.capacity and not report.devices.gpu:
            return {}, sorted_map(report.labels), []
        capacity, devices = offered(report.capacity, report.devices, "")
    except Malformed as fault:
        raise SettingWrong(f"{PREFIX}NODE_OFFER: {fault}") from None
    return capacity, sorted_map(report.labels), devices
