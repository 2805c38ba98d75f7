"""How fast Deedbook is: each figure is a ratio to a floor, or to another project at the same work, run in turn with it.

``python -m benchmarks [name …]`` from the repository root. Microseconds change from machine to machine and from minute
to minute; ratios of things that take turns hold. The tests run only quick forms.
"""
