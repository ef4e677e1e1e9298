"""Files with passwords and tokens, as they have to be: their owner's alone."""


def keep(path, text):
    """Writes a secret."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)
    return path
