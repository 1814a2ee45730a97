"""Retained events, agreed by all brokers: versions, and who is sent what.

The events themselves are kept by the driver.
"""
