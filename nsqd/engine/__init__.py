"""The broker's rules, pure and deterministic: bytes, integers and ``now_ns`` in, values out.

A topic is a log of ready-made message frames, a channel is the ranges of sequence numbers it still must
deliver.
"""
