"""Whether a run met the thresholds of its profile: a sentence for each one that it missed. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from load.book import EARLY
from load.latency import Histogram
from load.profile import Profile
from load.seen import Course, Remaining
from load.tally import TIMEOUT, UNEXPLAINED, TallyResult


@dataclass(frozen=True)
class RunFigures:
    """Everything that was measured in a run."""

    profile: Profile
    seconds: float
    outcome: TallyResult
    errors: dict[str, int]
    counts: dict[str, int]
    latency: Mapping[str, Histogram]
    owed: Remaining
    courses: list[Course]
    drained_s: float
    silent_workers: list[str]
    killed: list[str]
    """Daemons that were killed on purpose: lost connections are expected then."""
    stopped_early: bool = False


# Errors that a client sees when an nsqd is killed; any other error counts against the cluster even then.
_LOST: Final = (
    "BrokenPipeError",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "RemoteDisconnected",
    "SSLEOFError",
    "SSLZeroReturnError",
    "TimeoutError",
    "Unreachable",
)


def expected_errors(figures: RunFigures) -> int:
    """Return how many errors are connections that a killed daemon broke."""
    if not figures.killed:
        return 0
    return sum(times for text, times in figures.errors.items() if text.split(":")[0] in _LOST)


def faults(figures: RunFigures) -> list[str]:
    """Return a sentence for each fault of a run, the worst first."""
    return [*_lost(figures), *_nothing_shown(figures), *_counts(figures), *_times(figures), *_costs(figures)]


def _lost(figures: RunFigures) -> Iterator[str]:
    outcome = figures.outcome
    if outcome.missing:
        yield (
            f"{outcome.missing:,} messages were acknowledged and not received, for example"
            f" {outcome.missing_names[0]} (topic, publisher and number)."
        )
    if outcome.unknown:
        yield (
            f"{outcome.unknown:,} messages were received and never sent, for example"
            f" {outcome.unknown_names[0]} (topic, publisher and number)."
        )
    if figures.silent_workers:
        names = ", ".join(figures.silent_workers)
        yield f"Worker {names} ended without its last words, so the tally has a hole."
    if never := figures.counts.get("deltas that never came"):
        yield f"{never} reports of workers never came, so the tally has a hole."


def _nothing_shown(figures: RunFigures) -> Iterator[str]:
    profile, outcome = figures.profile, figures.outcome
    if profile.publishers and not outcome.acked:
        yield "Nothing was published, so nothing was shown."
    elif profile.publishers and profile.consumers and not any(outcome.received.values()):
        yield "Nothing was consumed, so nothing was shown."
    wanted = sum(publisher.rate for publisher in profile.publishers)
    share = profile.thresholds.published_share
    if share is not None and wanted and all(publisher.rate for publisher in profile.publishers):
        due = wanted * figures.seconds * _mean_times(profile, figures.seconds)
        if outcome.acked < share * due:
            yield (
                f"{outcome.acked:,} messages were published of {due:,.0f} that were due:"
                f" {outcome.acked / due:.0%}, asked for are {share:.0%};"
                " this machine or the cluster did not keep up."
            )


def _counts(figures: RunFigures) -> Iterator[str]:
    limits, outcome, owed = figures.profile.thresholds, figures.outcome, figures.owed
    errors = sum(figures.errors.values()) - expected_errors(figures)
    if limits.errors is not None and errors > limits.errors:
        common = max(_unexpected(figures), key=lambda item: item[1])
        yield f"{errors:,} requests failed, allowed are {limits.errors:,}; most often: {common[0]}."
    if limits.refused is not None and outcome.refused > limits.refused:
        yield f"{outcome.refused:,} messages were refused, allowed are {limits.refused:,}."
    again = outcome.duplicates
    for limit, cause, what in (
        (limits.unexplained, UNEXPLAINED, "delivered again though nothing had failed"),
        (limits.timeouts, TIMEOUT, "delivered again after a timeout"),
    ):
        if limit is not None and again.get(cause, 0) > limit:
            yield f"{again[cause]:,} messages were {what}, allowed are {limit:,}."
    if limits.early is not None and (early := figures.counts.get(EARLY, 0)) > limits.early:
        yield f"{early:,} {EARLY}, allowed are {limits.early:,}."
    if limits.duplicates is not None and sum(again.values()) > limits.duplicates:
        yield f"{sum(again.values()):,} deliveries were duplicates, allowed are {limits.duplicates:,}."
    if figures.profile.consumers and limits.depth_at_end is not None and owed.messages > limits.depth_at_end:
        most = max(owed.by_channel, key=lambda name: owed.by_channel[name])
        yield (
            f"{owed.messages:,} messages were still pending at the end, allowed are {limits.depth_at_end:,};"
            f" most in {most}: {owed.by_channel[most]:,}."
        )
    if limits.oldest_s is not None and owed.oldest_s > limits.oldest_s:
        yield f"The oldest pending message is {owed.oldest_s:.1f} s old, allowed are {limits.oldest_s:g} s."
    if limits.drained_within_s is not None and figures.drained_s > limits.drained_within_s:
        yield (
            f"Reading what was left took {figures.drained_s:.1f} s,"
            f" allowed are {limits.drained_within_s:g} s."
        )


def _times(figures: RunFigures) -> Iterator[str]:
    limits = figures.profile.thresholds
    for name, percent, limit in (
        ("publish", 99, limits.publish_p99_ms),
        ("publish", 99.9, limits.publish_p999_ms),
        ("delivery", 50, limits.delivery_p50_ms),
        ("delivery", 99, limits.delivery_p99_ms),
        ("delivery", 99.9, limits.delivery_p999_ms),
        ("lookup", 99, limits.lookup_p99_ms),
        ("page", 99, limits.page_p99_ms),
    ):
        if limit is None:
            continue
        histogram = figures.latency.get(name)
        if histogram is None or not len(histogram):
            yield f"No {name} was timed, though the profile limits its time."
        elif (value := histogram.percentile(percent)) > limit:
            yield f"{percent:g} % of {name} times were within {value:,.1f} ms, asked for are {limit:g} ms."


def _costs(figures: RunFigures) -> Iterator[str]:
    limits = figures.profile.thresholds
    for course in figures.courses:
        if limits.memory_mb is not None and course.memory_mb > limits.memory_mb:
            yield f"{course.name} had {course.memory_mb:,.0f} MB of memory, allowed are {limits.memory_mb:g}."
        if limits.cpu_cores is not None and course.cores > limits.cpu_cores:
            yield f"{course.name} used {course.cores:.2f} processors, allowed are {limits.cpu_cores:g}."


def _unexpected(figures: RunFigures) -> list[tuple[str, int]]:
    every = list(figures.errors.items())
    return [item for item in every if not (figures.killed and item[0].split(":")[0] in _LOST)] or every


def _mean_times(profile: Profile, seconds: float) -> float:
    """Return the mean factor of the stages over the run."""
    left, sum_, last = seconds, 0.0, 1.0
    for stage in profile.stages:
        part = min(left, stage.seconds)
        sum_ += part * stage.times
        left -= part
        last = stage.times
    return (sum_ + left * last) / seconds if seconds else 1.0


def summary(figures: RunFigures) -> dict[str, Any]:
    """Return the figures as JSON, for other programs and for the report."""
    outcome, owed = figures.outcome, figures.owed
    return {
        "profile": figures.profile.name,
        "about": figures.profile.about,
        "seconds": round(figures.seconds, 1),
        "acknowledged": outcome.acked,
        "without_an_answer": outcome.unsure,
        "refused": outcome.refused,
        "received": sum(outcome.received.values()),
        "received_by_channel": outcome.received,
        "missing": outcome.missing,
        "unknown": outcome.unknown,
        "duplicates": outcome.duplicates,
        "published_per_second": round(outcome.acked / figures.seconds, 1) if figures.seconds else 0,
        "errors": figures.errors,
        "counts": figures.counts,
        "killed": figures.killed,
        "backlog_at_end": owed.messages,
        "oldest_s": round(owed.oldest_s, 1),
        "drained_s": round(figures.drained_s, 1),
        "latency_ms": {
            name: {
                "count": len(histogram),
                **{f"p{percent:g}": round(histogram.percentile(percent), 2) for percent in (50, 99, 99.9)},
                "longest": round(histogram.longest(), 2),
            }
            for name, histogram in sorted(figures.latency.items())
        },
        "daemons": {
            course.name: {
                "cpu_s": round(course.cpu_s, 2),
                "cores": round(course.cores, 3),
                "memory_mb": round(course.memory_mb, 1),
            }
            for course in figures.courses
        },
        "faults": faults(figures),
        "stopped_early": figures.stopped_early,
    }
