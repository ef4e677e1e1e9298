"""Requests in RDL as people write them: text, YAML or JSON, with clock times, zones, durations and recurrences."""
