"""The DisGB simulation: Table III and Figures 9 to 12."""
