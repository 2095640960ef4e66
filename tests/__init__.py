"""Tests; a package so that ``tests.support`` can never mean a third-party folder."""
