"""`python -m pgtrickle.cli`: how our own processes start one another, whatever PATH says."""

from pgtrickle.cli import main

main()
