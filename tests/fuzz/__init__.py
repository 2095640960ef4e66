"""Fuzzers: each module has one, a function ``fuzz`` made by Hypothesis, and its invariant in the first line.

A module may have a function ``close`` that closes what it has opened.
"""
