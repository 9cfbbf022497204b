"""The load generator: its own process, so that the screen never disturbs a stamp."""
