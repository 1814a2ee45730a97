"""`python -m geomq` is the command line."""

from geomq.cli import main

main()
