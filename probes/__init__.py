"""Everything that starts, reads, measures and judges an inference server; nothing in here knows about a screen."""

__version__ = "0.1.0"
