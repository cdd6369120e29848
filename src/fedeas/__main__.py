"""`python -m fedeas` is the same program as `fedeas`."""

from fedeas.cli.main import main

main()
