"""`largesse replay --what-if`: a recorded log decided again under other settings, beside what happened."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from multiprocessing import get_context
from pathlib import Path

from largesse.log.export import ExportWriter
from schemas.edge.cluster import ClusterNode
from schemas.edge.config import ConfigPatch
from schemas.edge.read import Malformed, read_cluster, read_input
from schemas.queues import Queue
from services.cli.documents import read_cluster_of, read_config_file
from services.cli.ending import Wrong, out, out_json
from services.cli.moments import point_of
from services.cli.progress import progress_of
from services.cli.replaying import reading, source_of, store_of
from services.cli.simulating import Asked, values_of
from services.cli.what_if_options import Said
from services.cli.what_if_text import Document, shown
from services.replay.whatif.answer import document_of
from services.replay.whatif.run import NotThere, Question, ask_from

SEEDS_MAX = 1_000
SLOWER_MAX = 1_000
ADDED = re.compile(r"^([0-9]{1,5}):(.+)$")


def what_if(log: str, said: Said, *, json: bool) -> None:
    """Decides the log again, once for each preset and seed, and shows it beside what was recorded. Raises Wrong."""
    questions = questions_of(said)
    source = source_of(log)  # Says what is wrong with it before anything is started.
    if said.log_out is not None and source.start is not None:
        raise Wrong(
            f"--log: {log} begins behind record {source.start.seq:,}, and the log that is written has to be whole"
        )
    if said.log_out is not None and len(questions) > 1:
        raise Wrong("--log: takes one preset and one seed at a time")
    if said.log_out is not None and Path(said.log_out).exists():
        raise Wrong(f"--log: {said.log_out} already exists")
    if len(questions) == 1:
        with progress_of("deciding again", "records") as tell, _log_of(said.log_out) as listener:
            answers = [_answer(log, next(iter(questions.values())), tell, listener)]
    else:
        answers = _side_by_side(log, list(questions.values()))
    by_name = dict(zip(questions, answers, strict=True))
    if json:
        out_json(answers[0] if len(answers) == 1 else {"answers": by_name})
    else:
        out(shown(by_name))


@contextmanager
def _log_of(path: str | None) -> Iterator[ExportWriter | None]:
    """Where the log of the other world goes. Raises Wrong."""
    if path is None:
        yield None
        return
    try:
        with ExportWriter(path) as writer:
            yield writer
    except OSError as error:
        raise Wrong(f"--log: {path}: {error.strerror}") from None


def _answer(
    log: str,
    question: Question,
    tell: Callable[[int, int], None] | None = None,
    listener: ExportWriter | None = None,
) -> Document:
    try:
        with reading():
            return document_of(ask_from(source_of(log), store_of(log), question, tell, listener), question)
    except Malformed as fault:
        raise Wrong(f"--set, with the log's policy: {fault}") from None
    except NotThere as fault:
        raise Wrong(f"{NAMED_BY.get(fault.kind, '--add-nodes')}: {fault}") from None


NAMED_BY = {"job": "--without-job", "user": "--without-user", "node": "--remove-node"}
"""Options that name what has to be in the log."""


def _side_by_side(log: str, questions: list[Question]) -> list[Document]:
    """In processes of their own, as many as there are processors. Raises Wrong."""
    # Not forked: whatever threads this process has would be missing there.
    with ProcessPoolExecutor(min(len(questions), _processors()), mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_answer, log, question) for question in questions]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _processors() -> int:
    import os

    return len(os.sched_getaffinity(0))


# ---------------------------------------------------------------- what is asked
def questions_of(said: Said) -> dict[str, Question]:
    """By the name of the column in which the answer stands."""
    base = Question(
        queues=_queues(said.queues),
        added=_added(said.added),
        removed=said.removed,
        without_jobs=said.without_jobs,
        without_users=said.without_users,
        slower_permille=_slower(said.slower),
    )
    fork, fork_ms = point_of("--from", said.since)
    until, until_ms = point_of("--to", said.until)
    if (fork is not None and until is not None and fork > until) or (
        fork_ms is not None and until_ms is not None and fork_ms > until_ms
    ):
        raise Wrong("--to: lies before --from")
    base = replace(base, fork=fork or 0, fork_ms=fork_ms, until=until, until_ms=until_ms)
    presets = said.preset.split(",") if said.preset is not None else [None]
    if len(presets) > 1 and said.seeds:
        raise Wrong("--seeds: takes one preset at a time")
    if said.seeds is not None and not 1 <= said.seeds <= SEEDS_MAX:
        raise Wrong(f"--seeds: has to be 1 to {SEEDS_MAX:,}")
    found = {}
    for preset in presets:
        values = values_of(Asked("", "", said.settings), preset)
        if said.seeds is None:
            found[preset or "decided"] = replace(base, values=values)
            continue
        if "seed" in values:
            raise Wrong("--seeds: leave seed out of --set")
        for seed in range(said.seeds):
            found[f"seed {seed}"] = replace(base, values={**values, "seed": seed})
    return found


def _queues(path: str | None) -> Queue | None:
    """Raises Wrong."""
    if path is None:
        return None
    document = read_config_file(path).document
    patch = read_input("config", document, "")
    if not isinstance(patch, ConfigPatch) or patch.queues is None:
        raise Wrong(f'--queues: {path}: says nothing of "queues"')
    return patch.queues


def _added(specs: Sequence[str]) -> list[ClusterNode]:
    """Nodes of a cluster file, or COUNT:RESOURCE=AMOUNT,... Raises Wrong."""
    nodes: list[ClusterNode] = []
    for spec in specs:
        match = ADDED.match(spec)
        if match is None:
            if not Path(spec).exists():
                raise Wrong(f"--add-nodes: {spec!r} is neither a cluster file nor COUNT:RESOURCE=AMOUNT,...")
            nodes += read_cluster_of(spec)[0].nodes
            continue
        pairs = [pair.partition("=") for pair in match[2].split(",")]
        capacity = {name: amount for name, _, amount in pairs}
        node = {"name": f"added-{len(nodes)}", "count": int(match[1]), "capacity": capacity}
        try:
            nodes += read_cluster({"nodes": [node]}).nodes
        except Malformed as fault:
            raise Wrong(f"--add-nodes: {spec}: {fault.reason}") from None
    names = [node.name for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise Wrong(f"--add-nodes: node {name!r} is added twice")
    return nodes


def _slower(text: str | None) -> int:
    if text is None:
        return 1_000
    try:
        permille = Decimal(text) * 1_000
        if permille == int(permille) and 1 <= permille <= SLOWER_MAX * 1_000:
            return int(permille)
    except (InvalidOperation, OverflowError, ValueError):
        pass
    raise Wrong(f"--slower: {text!r} has to be 0.001 to {SLOWER_MAX:,}, with at most three digits behind the point")
