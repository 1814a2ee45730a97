"""Broadcast groups: how they form and merge, what members, leaders and the cloud send each other."""
