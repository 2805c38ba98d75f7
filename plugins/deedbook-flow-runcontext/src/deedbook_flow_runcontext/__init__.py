"""Plans: validated, compiled from skills, and compared with the report of the work.

Import the module that you need; this package imports none of them. Start with `validation` and `compiler`.
"""
