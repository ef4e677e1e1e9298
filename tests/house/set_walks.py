"""Finds walks over a set: their order follows the hash seed, so it must never reach a decision.

What counts as a set is what can be seen in one file: displays, comprehensions, set() and frozenset(), set arithmetic
(also of dictionary keys), names and parameters bound or annotated as one, fields that a class of the file annotates as
one. What cannot be seen is left to the runs under two hash seeds.
"""

import ast
from collections.abc import Iterator

_MAKERS = {"set", "frozenset"}
_KEEPERS = {"copy", "difference", "intersection", "symmetric_difference", "union"}
_ARITHMETIC = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
_ORDER_FREE = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}
_ORDERED_BY_WALK = {"deque", "enumerate", "filter", "iter", "list", "map", "tuple", "zip"}
_ORDERED_BY_METHOD = {"extend", "fromkeys", "join"}
_TIES = {"max", "min"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def set_walks(tree: ast.Module) -> list[int]:
    """Lines that walk over a set without sorted(), in order, each once."""
    finder = _Finder(_set_fields(tree))
    finder.scope(tree, set())
    return sorted(finder.lines)


def _set_fields(tree: ast.Module) -> set[str]:
    """Names of fields that the file's classes annotate as sets and never as anything else."""
    as_set: set[str] = set()
    as_other: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    (as_set if _annotates_set(item.annotation) else as_other).add(item.target.id)
    return as_set - as_other


def _annotates_set(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return isinstance(annotation, ast.Name) and annotation.id in {"set", "frozenset", "Set", "AbstractSet"}


class _Finder:
    """One pass over the scopes of a file, inner ones with the names of the outer."""

    def __init__(self, fields: set[str]) -> None:
        self.fields = fields
        self.lines: set[int] = set()

    def scope(self, owner: ast.AST, outer: set[str]) -> None:
        """Looks through one module, class or function, then through those inside it."""
        own, inner = _own_nodes(owner)
        names = self._names(owner, own, outer)
        forgiven = _forgiven(own)
        for node in own:
            if node not in forgiven:
                self.lines.update(at.lineno for at in self._walked(node) if self._is_set(at, names))
        for nested in inner:  # A class's own names are not seen inside its methods.
            self.scope(nested, outer if isinstance(owner, ast.ClassDef) else names)

    def _names(self, owner: ast.AST, own: list[ast.AST], outer: set[str]) -> set[str]:
        names = set(outer)
        others: set[str] = set()
        if isinstance(owner, _FUNCTIONS):
            arguments = owner.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                (names.add if _annotates_set(argument.annotation) else names.discard)(argument.arg)
        for node in own:
            for target, is_set in self._bound(node, names):
                (names if is_set else others).add(target)
        return names - others

    def _bound(self, node: ast.AST, names: set[str]) -> Iterator[tuple[str, bool]]:
        """Names that a statement binds, and whether to a set."""
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, _annotates_set(node.annotation)
        elif isinstance(node, ast.Assign | ast.NamedExpr):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    yield target.id, self._is_set(node.value, names)

    def _is_set(self, node: ast.expr, names: set[str]) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in names
            case ast.Attribute(attr=attr):
                return attr in self.fields
            case ast.Call(func=ast.Name(id=name)):
                return name in _MAKERS
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return attr in _KEEPERS and self._is_set(value, names)
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _ARITHMETIC):
                return any(self._is_set(side, names) or _is_keys(side) for side in (left, right))
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_set(body, names) or self._is_set(orelse, names)
            case ast.BoolOp(values=values):
                return any(self._is_set(value, names) for value in values)
        return False

    def _walked(self, node: ast.AST) -> Iterator[ast.expr]:
        """What a node walks over in an order that someone can see."""
        match node:
            case ast.For(iter=walked) | ast.AsyncFor(iter=walked):
                yield walked
            case ast.ListComp(generators=generators) | ast.GeneratorExp(generators=generators):
                yield from (generator.iter for generator in generators)
            case ast.DictComp(generators=generators):
                yield from (generator.iter for generator in generators)
            case ast.YieldFrom(value=value):
                yield value
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Call(args=items) if any(
                isinstance(item, ast.Starred) for item in items
            ):
                yield from (item.value for item in items if isinstance(item, ast.Starred))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                if name in _ORDERED_BY_WALK or (name in _TIES and any(word.arg == "key" for word in keywords)):
                    yield from args
            case ast.Call(func=ast.Attribute(attr=attr), args=args) if attr in _ORDERED_BY_METHOD:
                yield from args
            case ast.Call(func=ast.Attribute(value=value, attr="pop"), args=[]):
                yield value


def _is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"keys", "items"}


def _own_nodes(owner: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    """The nodes of a scope in source order, and the scopes directly inside it."""
    own: list[ast.AST] = []
    inner: list[ast.AST] = []
    rest = list(ast.iter_child_nodes(owner))[::-1]
    while rest:
        node = rest.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            inner.append(node)
        else:
            own.append(node)
            rest.extend(list(ast.iter_child_nodes(node))[::-1])
    return own, inner


def _forgiven(own: list[ast.AST]) -> set[ast.AST]:
    """Walks whose order nobody sees: the whole argument of sorted(), any() and the like. With a key, min() and max()
    show who came first of a tie."""
    forgiven: set[ast.AST] = set()
    for node in own:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ORDER_FREE:
            if node.func.id in _TIES and any(word.arg == "key" for word in node.keywords):
                continue
            forgiven.update(node.args[:1])
    return forgiven
