"""Whole screens, composed of panels."""
