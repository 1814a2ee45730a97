"""Where events meet subscriptions: one file for each rule, a folder where a strategy is a protocol of its own.

A strategy sees events and messages and asks for actions. It never waits, and knows neither links nor sessions.
"""
