"""Durations as the daemons print them."""

from nsqclient.wire.durations import MICROSECOND, MILLISECOND, MINUTE, SECOND, Duration


def format_duration(span: Duration) -> str:
    """Write *span* the shortest way: ``1h0m0s``, ``1.5s``, ``250ms``, ``0s``."""
    if span < 0:
        return "-" + format_duration(-span)
    if span == 0:
        return "0s"
    if span < MICROSECOND:
        return f"{span}ns"
    if span < MILLISECOND:
        return _decimal(span, MICROSECOND) + "µs"
    if span < SECOND:
        return _decimal(span, MILLISECOND) + "ms"
    minutes, below_minute = divmod(span, MINUTE)
    seconds = _decimal(below_minute, SECOND) + "s"
    if not minutes:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}" if hours else f"{minutes}m{seconds}"


def _decimal(span: int, unit: int) -> str:
    whole, below = divmod(span, unit)
    if not below:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}." + f"{below:0{digits}d}".rstrip("0")
