"""Share groups that span brokers, and the topics that stay at one broker.

What all strategies have in common about who is served; how events travel is theirs.
"""
