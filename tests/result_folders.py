"""Folders of attempts that have left results, as an agent keeps them."""

from services.agent.folders import attempt_folder


def left(data, files, *, job="j", run="7-e.1", stage="map", index=0, number=1):
    """The results folder of an attempt that has left files (texts or bytes), by path; a path that ends in / is a
    folder."""
    folder = attempt_folder(data, job, run, stage, index, number)
    (folder / "work").mkdir(parents=True)
    (folder / "task.json").write_bytes(b"{}")
    for path, content in files.items():
        where = folder / "work" / path
        if path.endswith("/"):
            where.mkdir(parents=True)
            continue
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "work"


def tree(folder):
    """What lies below a folder: bytes of files, targets of links, None for folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = None if path.is_dir() else path.read_bytes()
    return found
