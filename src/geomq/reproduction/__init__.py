"""The published results of the five papers, computed again: one package a paper, and one for the live experiments.

Owns what was published, the statements made of it, and how ours are put beside them. It measures with the simulator,
the evaluation, the pipeline and the testbed; nothing but the command line knows it. `claims`, `tables`, `figures` and
`studies` are what all of them write with.
"""
