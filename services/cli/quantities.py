"""Base units as people write them: `2`, `500m`, `7.5Gi`."""

from schemas import Vector

_MILLI = ("cpu", "gpu")
_MIB = ("memory", "disk")
_MBIT = ("network", "disk_io")


def quantity_text(resource: str, amount: int) -> str:
    """One amount, short; rounded to two digits behind the point where it has more."""
    if resource in _MILLI:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in _MIB:
        for unit, mib in (("Ti", 1 << 20), ("Gi", 1 << 10)):
            if amount >= mib:
                return f"{amount / mib:.2f}".rstrip("0").rstrip(".") + unit
        return f"{amount}Mi"
    if resource in _MBIT:
        return f"{amount}M" if amount % 1000 else f"{amount // 1000}G"
    return str(amount)


def vector_text(vector: Vector) -> str:
    """All of them: `cpu 2, memory 7.5Gi`."""
    return ", ".join(f"{resource} {quantity_text(resource, amount)}" for resource, amount in vector.items())
