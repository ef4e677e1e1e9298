"""What the gateway answers with: JSON documents, as plain values, made from its view; and the counts for metrics."""

from typing import Any

Document = dict[str, Any]
