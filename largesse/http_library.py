"""httpx without its own command line: that takes longer to import than httpx itself (click, rich, pygments).

httpx goes on without it where those are not installed; here it finds the module closed.
"""

import sys
from typing import Any

_MAIN = "httpx._main"
_modules: dict[str, Any] = sys.modules

if "httpx" in _modules:
    import httpx
else:
    _modules[_MAIN] = None
    try:
        import httpx
    finally:
        del _modules[_MAIN]

__all__ = ["httpx"]
