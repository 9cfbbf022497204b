"""One chart or table of the live screen a file, each with a constant `PANEL`."""
