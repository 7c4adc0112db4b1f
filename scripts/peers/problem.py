"""What ends a peer with exit code 2."""


class DataProblem(Exception):
    """Data or settings that a peer cannot train on; the text names the remedy."""
