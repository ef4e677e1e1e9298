"""What the gateway answers with: a JSON document as plain values."""

from typing import Any

Document = dict[str, Any]
