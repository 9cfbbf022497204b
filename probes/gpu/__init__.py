"""GPU memory, clocks and processes, one vendor library a file."""
