"""Connections before anything is known of them: how many files the process may open, and who takes what comes.

What a connection is for is decided by those who listen.
"""
