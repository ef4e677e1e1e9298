"""GPUs of a node: which there are, what a task sees of them, and which of them are well."""
