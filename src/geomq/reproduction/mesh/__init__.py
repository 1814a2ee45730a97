"""The federation mesh: its theorems, overlays and losses."""
