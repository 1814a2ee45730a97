"""Recorded traffic: traces and archives read as workloads, verdicts on single events, advice for the whole."""
