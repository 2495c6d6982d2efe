"""``python -m bitlane.cli``."""

from . import main

main()
