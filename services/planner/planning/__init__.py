"""Plans of reservations: what is promised by step and resource, and where a request finds room. Knows no records."""
