"""Probe load: a client process of its own (`python -m probes.load`), and the light parts that plan its requests."""
