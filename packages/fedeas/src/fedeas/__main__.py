"""`python -m fedeas` is the same program as `fedeas`."""

from fedeas.cli import main

main()
