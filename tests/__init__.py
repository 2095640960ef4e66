"""Tests; a package so that ``tests.support`` can never mean somebody else's folder."""
