"""How fast Deedbook is, each figure as a ratio to a floor or a peer that runs beside it in the same process.

``python -m benchmarks [name …]`` from the repository root. Microseconds differ from machine to machine and from minute
to minute; ratios of things that were run in turn hold. Nothing here runs in CI.
"""
