"""The federation mesh: announcements, membership and redundant ways along it."""
