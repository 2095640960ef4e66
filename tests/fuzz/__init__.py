"""Fuzzers: each module holds one, its invariant in the first line, as a function ``fuzz`` made by Hypothesis.

A module may have a function ``close`` for what it has opened.
"""
