"""What is promised to reservations: kept in every round, foreseen before others start (docs/reservations.md)."""
