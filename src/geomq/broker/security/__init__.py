"""Who may come in and what they may do: passwords, client ids, rights.

Answers questions; refusing is left to those who asked.
"""
