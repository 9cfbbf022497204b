"""One command of the command line a file, each with a click command named `command`."""
