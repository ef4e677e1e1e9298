"""The modules of the page in one script, each in a function of its own, in an order in which none waits for another.

A browser asks for each module by a request of its own, and for six at a time: with sixty of them a view would wait ten
times for the gateway before it asks for anything of the cell. Nothing is changed but lines that import and export, and
the modules are served beside it as they are.
"""

import posixpath
import re
from collections.abc import Mapping

_FROM = r'\s*from\s*"(?P<place>[^"]+)";?'
_BEGIN = r"(?:^|(?<=[;}]))"
_IMPORT = re.compile(rf"{_BEGIN}import\s*(?:(?P<default>[\w$]+)|\{{(?P<names>[^}}]*)\}}){_FROM}", re.MULTILINE)
_PASSED = re.compile(rf"{_BEGIN}export\s*\{{(?P<names>[^}}]*)\}}{_FROM}", re.MULTILINE)
_LISTED = re.compile(rf"{_BEGIN}export\s*\{{(?P<names>[^}}]*)\}};?", re.MULTILINE)
_DEFAULT = re.compile(rf"{_BEGIN}export default ", re.MULTILINE)
_DECLARED = re.compile(r"^export (?=(?:async )?(?:function|class|const) (?P<name>[\w$]+))", re.MULTILINE)


class PageBroken(Exception):
    """Modules that cannot be joined: which, and why."""


def joined_modules(sources: Mapping[str, str], first: str) -> str:
    """The script that does what the module `first` does. `sources`: by path. Raises PageBroken."""
    found: dict[str, _Module] = {}
    _gather(sources, first, found, ())
    wanted: dict[str, dict[str, None]] = {path: {} for path in found}
    for module in found.values():
        for place, names in module.imports:
            wanted[place] |= dict.fromkeys(names)
    parts = [module.text(wanted[path]) for path, module in found.items()]
    return '"use strict";\nconst modules = {};\n' + "".join(parts)


def _gather(sources: Mapping[str, str], path: str, found: dict[str, "_Module"], above: tuple[str, ...]) -> None:
    """Adds a module behind all that it imports."""
    if path in above:
        raise PageBroken(f"modules that import each other: {' -> '.join((*above, path))}")
    if path in found:
        return
    if path not in sources:
        raise PageBroken(f"{above[-1] if above else 'the page'} imports {path}, which is not there")
    module = _Module(path, sources[path])
    for place, _ in module.imports:
        _gather(sources, place, found, (*above, path))
    found[path] = module


class _Module:
    """`imports`: which names of which modules; `_exports`: what stands for each name that others may import."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self.imports: list[tuple[str, list[str]]] = []
        self._exports: dict[str, str] = {}
        body = _PASSED.sub(self._passed, source)
        body = _LISTED.sub(self._listed, body)
        body = _IMPORT.sub(self._imported, body)
        if _DEFAULT.search(body):
            body = _DEFAULT.sub("const $default = ", body)
            self._exports["default"] = "$default"
        self._exports |= {found["name"]: found["name"] for found in _DECLARED.finditer(body)}
        self._body = _DECLARED.sub("", body)

    def _place(self, found: re.Match[str]) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(self._path), found["place"]))

    def _imported(self, found: re.Match[str]) -> str:
        place = self._place(found)
        pairs = [("default", found["default"])] if found["default"] else _pairs(found["names"])
        self.imports.append((place, [name for name, _ in pairs]))
        names = ", ".join(name if name == here else f"{name}: {here}" for name, here in pairs)
        return f'const {{ {names} }} = modules["{place}"];'

    def _passed(self, found: re.Match[str]) -> str:
        place = self._place(found)
        pairs = _pairs(found["names"])
        self.imports.append((place, [name for name, _ in pairs]))
        self._exports |= {given: f'modules["{place}"].{name}' for name, given in pairs}
        return ""

    def _listed(self, found: re.Match[str]) -> str:
        self._exports |= {given: name for name, given in _pairs(found["names"])}
        return ""

    def text(self, wanted: Mapping[str, None]) -> str:
        """As part of the script. `wanted`: names that others import. Raises PageBroken."""
        for name in wanted:
            if name not in self._exports:
                raise PageBroken(f"{self._path} exports no {name}")
        given = ", ".join(f"{name}: {self._exports[name]}" for name in wanted)
        return f'\n// {self._path}\nmodules["{self._path}"] = (() => {{\n{self._body}\nreturn {{ {given} }};\n}})();\n'


def _pairs(names: str) -> list[tuple[str, str]]:
    """What a list in braces names: each as it is called there, and as what it is taken or given."""
    pairs = []
    for each in names.split(","):
        name, _, other = each.strip().partition(" as ")
        if name:
            pairs.append((name.strip(), other.strip() or name.strip()))
    return pairs
