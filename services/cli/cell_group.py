"""`largesse cell`, with all of its commands."""

from services.cli import cell_removing, cell_routes  # noqa: F401 - they add theirs
from services.cli.cells import cell_app

__all__ = ["cell_app"]
