"""The engine: one library that carries records to cores and back."""
