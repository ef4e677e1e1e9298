"""Fields of a core's state that can be rebuilt from the rest of it."""

from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import Field

if TYPE_CHECKING:
    _T = TypeVar("_T")
    Cache = Annotated[_T, Field(exclude=True)]
else:
    from typing import Any

    class Cache:
        """`Cache[T]`: a field of type T that enters no snapshot and may change cost, never bytes.

        Pydantic, which reads and writes snapshots, is not told of T, which may be any class. For the same reason this
        module is not compiled (setup.py).
        """

        def __class_getitem__(cls, kind: object) -> object:
            return Annotated[Any, Field(exclude=True)]
