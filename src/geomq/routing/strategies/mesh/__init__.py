"""The federation mesh: announcements, membership and redundant paths along it."""
