"""The first record of a log after which something holds, said in a small closed language."""
