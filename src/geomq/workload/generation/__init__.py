"""Workloads made from a seed: the published simulation, the live scenarios, presets of both, written to disk."""
