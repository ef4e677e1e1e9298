"""The comparison of presets: a table for the terminal, and a page of HTML with charts that needs nothing else.

Both take results as `largesse simulate --json` prints them, by preset. The first preset is the baseline: the others are
compared with it.
"""

from services.simulator.report.page import Inputs, comparison_page
from services.simulator.report.table import Table, comparison_table, rejections_table

__all__ = ["Inputs", "Table", "comparison_page", "comparison_table", "rejections_table"]
