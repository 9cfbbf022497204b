"""Measuring plans: each yields steps and consumes events."""
