"""Replay: a recorded log, decided again and compared."""
