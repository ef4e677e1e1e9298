"""Nodes of earlier starts that are not started any more: what lives in their folders is ended, and leaves the cell."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from largesse.task_output import folder_name
from services.agent.runs import runs_of_jobs
from services.agent.settings import NodeSettings

NO_ROOM = {"cpu": 1}
"""What such a node offers, in millicores: something has to be offered. It takes no tasks."""


def departing_nodes(folders: Path, started: Iterable[str], like: NodeSettings) -> list[NodeSettings]:
    """Nodes whose folder below `folders` holds runs of jobs, without those that are started. An agent of each reports
    what has ended there, ends the rest and leaves. `like`: how tasks are treated. Blocks.
    """
    names = {folder_name(name): True for name in started}
    found = []
    for folder in sorted(folders.iterdir()) if folders.is_dir() else []:
        name = unquote(folder.name)
        # A name so long that its folder ends in a hash is not known.
        if folder.name in names or folder_name(name) != folder.name or not folder.is_dir() or not runs_of_jobs(folder):
            continue
        found.append(
            NodeSettings(
                name,
                folder,
                capacity=NO_ROOM,
                stop_grace_ms=like.stop_grace_ms,
                kept=like.kept,
                task_user=like.task_user,
                keep_running=False,
                leaves=True,
                departing=True,
            )
        )
    return found
