"""Memory and state of GPUs and of the machine. Each vendor's library is imported inside its own module only.

Nothing here decides anything: readings are facts, and what a driver does not say is None.
"""
