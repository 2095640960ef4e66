"""A stream that arrives in pieces, as a consumer in bench.peers reads it."""

import itertools


def pieces(stream, cuts):
    """Return *stream* cut at *cuts*, whatever numbers they are."""
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    return [stream[begin:end] for begin, end in itertools.pairwise(edges)]


def consumed(stream, cuts, cut):
    """Return what a reader with *cut* answers, the heads it sees, its count of messages, the bytes left."""
    data, have = bytearray(1 << 16), 0
    answers, heads, total = b"", b"", 0
    for piece in pieces(stream, cuts):
        data[have : have + len(piece)] = piece
        have += len(piece)
        end, seen, answer, count = cut(data, have)
        if count:
            heads += seen()
        answers += answer
        total += count
        data[: have - end] = data[end:have]
        have -= end
    return answers, heads, total, bytes(data[:have])
