"""Results of earlier stages that tasks here need, brought before their commands start.

    DATA/jobs/JOB/RUN/#inputs/STAGE/INDEX    what task INDEX left

All tasks of a job on this node share them: the attempt that succeeded, and with it what it left, stays the same. Files
are copied from the agent of the node where that attempt ran; those that are here are linked to. A folder takes its
place once it is complete.
"""

import asyncio
import itertools
import os
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from largesse.lifecycle.handed import Handed
from largesse.task_output import folder_name
from largesse.task_results import Entry, FilePiece, Listed, WantedResults
from largesse.unpacked import Unpacked
from services.agent.documents import Spoilt, open_folder
from services.agent.folders import INPUTS, JOBS
from services.agent.found import Unsound
from services.agent.local import Launched, Local, mono_ms, spoilt
from services.agent.outbox import Result
from services.agent.peers import NotServed, Peer, Silent, by_folder
from services.agent.settings import NodeSettings
from services.agent.task_results import holding_folder
from services.agent.trees import FOLDER, remove_tree
from services.agent.troubles import MACHINE, failed_start

PART = "~"
"""Behind an index, and before a number of its own: a folder that is not complete."""
FETCHERS = 4
"""Tasks whose results are fetched at once."""
PATIENCE_MS = 60_000
"""For so long the agent of another node may be silent."""
PAUSE_MS, PAUSE_MS_MAX = 100, 3_000
_NUMBERS = itertools.count()


class NotBrought(Exception):
    """Results could not be brought: says of which task, and why. `fault`: whether it is the job's own."""

    def __init__(self, text: str, *, fault: bool = False) -> None:
        super().__init__(text)
        self.fault = fault


class GivenUp(Exception):
    """Nobody waits for it any more."""


@dataclass(slots=True)
class _Run:
    """What this agent brought for one run of a job. `bytes`: of copies. `whole`: stages of which all is in place;
    `begun`: those that it has looked into.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    room: threading.Lock = field(default_factory=threading.Lock)
    bytes: int = 0
    whole: dict[str, bool] = field(default_factory=dict)
    begun: dict[str, bool] = field(default_factory=dict)


class Inputs:
    """Brings them for one node. `peer`: asks the agents of other nodes."""

    def __init__(self, node: NodeSettings, peer: Peer) -> None:
        self._node, self._peer = node, peer
        self._pool = ThreadPoolExecutor(FETCHERS, thread_name_prefix="inputs")
        self._closed = threading.Event()
        self._runs: dict[tuple[str, int], dict[str, _Run]] = {}
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._changed = asyncio.Event()

    def close(self) -> None:
        """Brings nothing more."""
        self._closed.set()
        for task in self._under_way:
            task.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, local: Local, handed: list[Handed], then: Callable[[Launched | None], Awaitable[None]]) -> None:
        """Brings what was handed on to an attempt, and calls `then` once it is in place, with None, or with how the
        attempt ended since it cannot be. Nothing is called where it has ended meanwhile.
        """

        async def brought() -> None:
            try:
                outcome = await self._outcome(local, handed)
            except GivenUp:
                return
            await then(outcome)

        local.waits = True
        task = asyncio.ensure_future(brought())
        self._under_way[task] = None
        task.add_done_callback(lambda _: self._changed.set())

    async def watch(self) -> None:
        """For ever, or until one of them ends by an error, which it raises."""
        while True:
            self._changed.clear()
            for task in [task for task in self._under_way if task.done()]:
                del self._under_way[task]
                task.result()
            await self._changed.wait()

    async def _outcome(self, local: Local, handed: list[Handed]) -> Launched | None:
        try:
            await self.bring(local, handed)
        except NotBrought as why:
            return Launched(local, result=Result("cannot_start" if why.fault else "lost", detail=str(why)))
        except Spoilt as error:
            return Launched(local, result=spoilt(error))
        except OSError as error:
            result = Result("lost", detail=f"results of earlier stages cannot be brought: {error.strerror or error}")
            return Launched(local, result=result, trouble=failed_start(error) if error.errno in MACHINE else "")
        return None

    def forget(self, job: str, admitted: int) -> None:
        """The job has ended."""
        self._runs.pop((job, admitted), None)

    async def bring(self, local: Local, handed: Iterable[Handed]) -> None:
        """Until all that was handed on is in place, or the attempt has ended. Raises NotBrought, GivenUp, Spoilt,
        OSError.
        """
        key, name = (local.name.job, local.admitted), local.folder.parents[1].name
        run = self._runs.setdefault(key, {}).setdefault(name, _Run())
        async with run.lock:
            missing = [tasks for tasks in handed if tasks.stage not in run.whole]
            for unknown in [tasks.stage for tasks in missing if not tasks.count]:
                where = f"where stage {unknown} left its results in an earlier run is known no more"
                raise NotBrought(f"{where}: run the job again from that stage", fault=True)
            if not missing:
                return
            fetch = _Fetch(self._node, self._peer, local, run, lambda: self._closed.is_set() or local.phase == "ended")
            try:
                await self._in_thread(fetch.begin, list(dict.fromkeys(tasks.stage for tasks in missing)))
                await self._all(fetch, missing)
            finally:
                fetch.close()
            run.whole.update(dict.fromkeys((tasks.stage for tasks in missing), True))

    async def _all(self, fetch: "_Fetch", missing: list[Handed]) -> None:
        each = ((tasks, index) for tasks in missing for index in range(tasks.first, tasks.first + tasks.count))

        async def in_turn() -> None:
            for tasks, index in each:
                await self._in_thread(fetch.one, tasks, index)

        parts = [asyncio.ensure_future(in_turn()) for _ in range(FETCHERS)]
        try:
            await asyncio.gather(*parts)
        finally:
            fetch.failed.set()
            for part in parts:
                part.cancel()

    def _in_thread(self, work: Callable[..., None], *arguments: object) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)


class _Fetch:
    """Of one attempt. Everything but `close` blocks, and runs in threads. `failed`: one of them has, so others end."""

    def __init__(self, node: NodeSettings, peer: Peer, local: Local, run: _Run, over: Callable[[], bool]) -> None:
        self.failed = threading.Event()
        self._node, self._local, self._run, self._over = node, local, run, over
        self._peers = {node.name: by_folder(lambda _: node.data)}
        self._peer = peer
        self._folders: list[int] = []
        self._stages: dict[str, int] = {}
        self._lock, self._users, self._closed = threading.Lock(), 0, False

    def begin(self, stages: Iterable[str]) -> None:
        """Opens the folders of these stages. Raises OSError, Spoilt, GivenUp."""
        with self._used():
            top = open_inputs(self._node, self._local)
            self._folders.append(top)
            for stage in stages:
                name = folder_name(stage)
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=top)
                try:
                    folder = os.open(name, FOLDER, dir_fd=top)
                except NotADirectoryError as error:
                    raise Spoilt(error.errno, error.strerror, name) from None
                self._folders.append(folder)
                self._stages[stage] = folder
                os.fchmod(folder, _mode(self._node))
                if stage not in self._run.begun:
                    _remove_parts(folder)
                    self._run.begun[stage] = True

    def close(self) -> None:
        """Lets go of the folders, once no thread uses them."""
        with self._lock:
            self._closed = True
        self._let_go()

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise GivenUp
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
            self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            over = self._closed and not self._users
            folders, self._folders = (self._folders, []) if over else ([], self._folders)
        for folder in folders:
            os.close(folder)

    def one(self, tasks: Handed, index: int) -> None:
        """Brings what one task left. Raises NotBrought, GivenUp, OSError."""
        with self._used():
            stage, name = self._stages[tasks.stage], str(index)
            if _is_there(name, stage):
                return
            run = tasks.run or self._local.admitted
            wanted = WantedResults(self._local.name.job, tasks.stage, index, tasks.attempt, run)
            self._copy(tasks.node, wanted, stage)

    def _copy(self, node: str, wanted: WantedResults, stage: int) -> None:
        part = f"{wanted.index}{PART}{next(_NUMBERS)}"  # A thread that nobody waits for any more may have another.
        users = self._node.task_user
        user = None if users is None else users.of(self._local.admitted)
        os.mkdir(part, 0o700, dir_fd=stage)
        owner = None if user is None else (user.uid, user.gid)
        try:
            if owner is not None:
                os.chown(part, *owner, dir_fd=stage, follow_symlinks=False)
            with Unpacked(os.open(part, FOLDER, dir_fd=stage), owner) as folder:
                for entry in self._listed(node, wanted):
                    self._bring(node, wanted, entry, folder)
            os.rename(part, str(wanted.index), src_dir_fd=stage, dst_dir_fd=stage)
        except BaseException as error:
            with suppress(OSError):
                remove_tree(part, stage)
            if not (isinstance(error, OSError) and _is_there(str(wanted.index), stage)):
                raise

    def _listed(self, node: str, wanted: WantedResults) -> Iterator[Entry]:
        after = ""
        while True:
            page = self._asked(node, WantedResults(*_of(wanted), after=after))
            assert isinstance(page, Listed)
            if page.too_many:
                raise NotBrought(f"{_task(wanted)} has left too many files: pack them into an archive", fault=True)
            yield from page.entries
            if not page.more:
                return
            after = page.entries[-1].path

    def _bring(self, node: str, wanted: WantedResults, entry: Entry, folder: Unpacked) -> None:
        if entry.kind == "folder":
            folder.make_folder(entry.path)
        elif entry.kind == "link":
            folder.make_link(entry.path, entry.target)
        elif node != self._node.name or not self._linked(wanted, entry, folder):
            self._take(entry.size)
            with folder.writing(entry) as file:
                at = 0
                while at < entry.size:
                    piece = self._asked(node, WantedResults(*_of(wanted), file=entry.path, offset=at))
                    assert isinstance(piece, FilePiece)
                    if piece.size != entry.size:
                        raise NotBrought(f"a file of {_task(wanted)} changes while it is fetched: {entry.path!a:.200}")
                    at += os.write(file, piece.data)

    def _linked(self, wanted: WantedResults, entry: Entry, folder: Unpacked) -> bool:
        """Whether a file of this node could be linked to. Not every file system has links."""
        try:
            with holding_folder(self._node.data, wanted, entry.path) as (source, name):
                folder.link_file(entry.path, source, name)
        except (OSError, Unsound):
            return False
        return True

    def _take(self, size: int) -> None:
        """Counts what is about to be copied. Raises NotBrought beyond the limit."""
        most = self._node.inputs_bytes
        with self._run.room:
            if self._run.bytes + size > most:
                text = f"they take more than the {most >> 20} MiB of LARGESSE_NODE_INPUTS_MIB"
                raise NotBrought(f"results of earlier stages cannot be brought to this node: {text}", fault=True)
            self._run.bytes += size

    def _asked(self, node: str, wanted: WantedResults) -> Listed | FilePiece:
        """What the node's agent answers, asked again while it is silent. Raises NotBrought, GivenUp."""
        until_ms, pause_ms = mono_ms() + PATIENCE_MS, PAUSE_MS
        while True:
            if self._over() or self.failed.is_set():
                raise GivenUp
            try:
                found = self._peers.get(node, self._peer)(node, wanted)
            except NotServed as why:
                raise NotBrought(f"results of {_task(wanted)} on node {node}: {why}") from None
            except Silent as why:
                if mono_ms() >= until_ms:
                    raise NotBrought(f"results of {_task(wanted)} cannot be fetched from node {node}: {why}") from None
                self.failed.wait(pause_ms / 1_000)
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
                continue
            if found is None:
                raise NotBrought(f"results of {_task(wanted)} are not kept on node {node} any more")
            return found


def open_inputs(node: NodeSettings, local: Local) -> int:
    """A descriptor of the folder of inputs, made where it is missing. Raises OSError; Spoilt where a task did that."""
    parts = (JOBS, *local.folder.parents[1].relative_to(node.data / JOBS).parts, INPUTS)
    try:
        folder = open_folder(node.data, *parts, mode=0o700 if node.task_user is None else 0o711)
    except FileExistsError:
        folder = open_folder(node.data, *parts)
    os.fchmod(folder, _mode(node))
    return folder


def _mode(node: NodeSettings) -> int:
    """Of folders that tasks only look into; what lies in those of tasks is their user's."""
    return 0o700 if node.task_user is None else 0o755


def _remove_parts(folder: int) -> None:
    """What an earlier agent has not finished. Raises OSError."""
    with os.scandir(folder) as found:
        parts = [entry.name for entry in found if PART in entry.name]
    for part in parts:
        remove_tree(part, folder)


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _of(wanted: WantedResults) -> tuple[str, str, int, int | None, int | None]:
    return wanted.job, wanted.stage, wanted.index, wanted.attempt, wanted.admitted


def _task(wanted: WantedResults) -> str:
    return f"{wanted.stage}/{wanted.index}"
