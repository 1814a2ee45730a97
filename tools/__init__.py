"""What makes files of the package; none of it is installed."""
