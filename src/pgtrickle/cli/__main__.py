"""`python -m pgtrickle.cli`: how pgtrickle starts its own processes, independent of PATH."""

from pgtrickle.cli import main

main()
