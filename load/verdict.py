"""Whether a run met the thresholds of its profile: a sentence for each fault, and for each problem. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from load.book import EARLY
from load.daemons import Backlog, DaemonUsage
from load.latency import Histogram
from load.profile import Profile
from load.tally import TIMEOUT, UNEXPLAINED, TallyResult


@dataclass(frozen=True)
class RunResult:
    """The measurements of a run."""

    profile: Profile
    seconds: float
    outcome: TallyResult
    errors: dict[str, int]
    counts: dict[str, int]
    latency: Mapping[str, Histogram]
    backlog: Backlog
    usages: list[DaemonUsage]
    drained_s: float
    unreported_workers: list[str]
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


def expected_errors(result: RunResult) -> int:
    """Return how many errors are connections that a killed daemon broke."""
    if not result.killed:
        return 0
    return sum(times for text, times in result.errors.items() if text.split(":")[0] in _LOST)


def faults(result: RunResult) -> list[str]:
    """Return a sentence for each fault of a run, the worst first."""
    return [*_lost(result), *_nothing_shown(result), *_counts(result), *_times(result), *_costs(result)]


def _lost(result: RunResult) -> Iterator[str]:
    outcome = result.outcome
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
    if result.unreported_workers:
        names = ", ".join(result.unreported_workers)
        yield f"Worker {names} ended without its last report, so the tally has a hole."
    if never := result.counts.get("deltas that never came"):
        yield f"{never} reports of workers never came, so the tally has a hole."


def _nothing_shown(result: RunResult) -> Iterator[str]:
    profile, outcome = result.profile, result.outcome
    if profile.publishers and not outcome.acked:
        yield "Nothing was published, so nothing was shown."
    elif profile.publishers and profile.consumers and not any(outcome.received.values()):
        yield "Nothing was consumed, so nothing was shown."
    wanted = sum(publisher.rate for publisher in profile.publishers)
    share = profile.thresholds.published_share
    if share is not None and wanted and all(publisher.rate for publisher in profile.publishers):
        due = wanted * result.seconds * _mean_times(profile, result.seconds)
        if outcome.acked < share * due:
            yield (
                f"{outcome.acked:,} messages were published of {due:,.0f} that were due:"
                f" {outcome.acked / due:.0%}, asked for are {share:.0%};"
                " this machine or the cluster did not keep up."
            )


def _counts(result: RunResult) -> Iterator[str]:
    limits, outcome, backlog = result.profile.thresholds, result.outcome, result.backlog
    errors = sum(result.errors.values()) - expected_errors(result)
    if limits.errors is not None and errors > limits.errors:
        common = max(_unexpected(result), key=lambda item: item[1])
        yield f"{errors:,} requests failed, allowed are {limits.errors:,}; most often: {common[0]}."
    if limits.refused is not None and outcome.refused > limits.refused:
        yield f"{outcome.refused:,} messages were refused, allowed are {limits.refused:,}."
    duplicates = outcome.duplicates
    for limit, cause, what in (
        (limits.unexplained, UNEXPLAINED, "delivered again though nothing had failed"),
        (limits.timeouts, TIMEOUT, "delivered again after a timeout"),
    ):
        if limit is not None and duplicates.get(cause, 0) > limit:
            yield f"{duplicates[cause]:,} messages were {what}, allowed are {limit:,}."
    if limits.early is not None and (early := result.counts.get(EARLY, 0)) > limits.early:
        yield f"{early:,} {EARLY}, allowed are {limits.early:,}."
    if limits.duplicates is not None and sum(duplicates.values()) > limits.duplicates:
        yield f"{sum(duplicates.values()):,} deliveries were duplicates, allowed are {limits.duplicates:,}."
    if (
        result.profile.consumers
        and limits.depth_at_end is not None
        and backlog.messages > limits.depth_at_end
    ):
        most = max(backlog.by_channel, key=lambda name: backlog.by_channel[name])
        yield (
            f"{backlog.messages:,} messages were still pending at the end,"
            f" allowed are {limits.depth_at_end:,}; most in {most}: {backlog.by_channel[most]:,}."
        )
    if limits.oldest_s is not None and backlog.oldest_s > limits.oldest_s:
        yield (
            f"The oldest pending message is {backlog.oldest_s:.1f} s old, allowed are {limits.oldest_s:g} s."
        )
    if limits.drained_within_s is not None and result.drained_s > limits.drained_within_s:
        yield (
            f"Reading what was left took {result.drained_s:.1f} s, allowed are {limits.drained_within_s:g} s."
        )


def _times(result: RunResult) -> Iterator[str]:
    limits = result.profile.thresholds
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
        histogram = result.latency.get(name)
        if histogram is None or not len(histogram):
            yield f"No {name} was timed, though the profile limits its time."
        elif (value := histogram.percentile(percent)) > limit:
            yield f"{percent:g} % of {name} times were within {value:,.1f} ms, asked for are {limit:g} ms."


def _costs(result: RunResult) -> Iterator[str]:
    limits = result.profile.thresholds
    for usage in result.usages:
        if limits.memory_mb is not None and usage.memory_mb > limits.memory_mb:
            yield f"{usage.name} had {usage.memory_mb:,.0f} MB of memory, allowed are {limits.memory_mb:g}."
        if limits.cpu_cores is not None and usage.cores > limits.cpu_cores:
            yield f"{usage.name} used {usage.cores:.2f} processors, allowed are {limits.cpu_cores:g}."


def _unexpected(result: RunResult) -> list[tuple[str, int]]:
    every = list(result.errors.items())
    return [item for item in every if not (result.killed and item[0].split(":")[0] in _LOST)] or every


def _mean_times(profile: Profile, seconds: float) -> float:
    """Return the mean factor of the stages over the run."""
    left, sum_, last = seconds, 0.0, 1.0
    for stage in profile.stages:
        part = min(left, stage.seconds)
        sum_ += part * stage.times
        left -= part
        last = stage.times
    return (sum_ + left * last) / seconds if seconds else 1.0


def summary(result: RunResult) -> dict[str, Any]:
    """Return the result as JSON, for other programs and for the report."""
    outcome, backlog = result.outcome, result.backlog
    return {
        "profile": result.profile.name,
        "about": result.profile.about,
        "seconds": round(result.seconds, 1),
        "acknowledged": outcome.acked,
        "without_an_answer": outcome.unsure,
        "refused": outcome.refused,
        "received": sum(outcome.received.values()),
        "received_by_channel": outcome.received,
        "missing": outcome.missing,
        "unknown": outcome.unknown,
        "duplicates": outcome.duplicates,
        "published_per_second": round(outcome.acked / result.seconds, 1) if result.seconds else 0,
        "errors": result.errors,
        "counts": result.counts,
        "killed": result.killed,
        "backlog_at_end": backlog.messages,
        "oldest_s": round(backlog.oldest_s, 1),
        "drained_s": round(result.drained_s, 1),
        "latency_ms": {
            name: {
                "count": len(histogram),
                **{f"p{percent:g}": round(histogram.percentile(percent), 2) for percent in (50, 99, 99.9)},
                "longest": round(histogram.longest(), 2),
            }
            for name, histogram in sorted(result.latency.items())
        },
        "daemons": {
            usage.name: {
                "cpu_s": round(usage.cpu_s, 2),
                "cores": round(usage.cores, 3),
                "memory_mb": round(usage.memory_mb, 1),
            }
            for usage in result.usages
        },
        "faults": faults(result),
        "stopped_early": result.stopped_early,
    }


# Part of an error text -> what it means.
_MEANINGS = (
    ("No space left", "The disk of an nsqd is full"),
    ("disk", "The disk of an nsqd takes no more"),
    ("E_AUTH", "An nsqd does not accept the secret: look at --auth-secret-file"),
    ("asks for AUTH", "An nsqd asks for AUTH: give --auth-secret-file"),
    ("CERTIFICATE_VERIFY_FAILED", "The certificate of an nsqd is not trusted: look at --tls-root-ca-file"),
    ("has no TLS", "An nsqd has no TLS"),
    ("draining", "An nsqd is being drained"),
)


def problems(
    backlog: Backlog, errors: Iterable[str], killed: Iterable[str], lost: Iterable[str]
) -> list[str]:
    """Return sentences: what daemons report of themselves, which do not answer, and what the errors mean."""
    found = [f"{text[0].upper()}{text[1:]}." for text in dict.fromkeys(backlog.problems)]
    found += [f"{name} was killed and started again, as asked for." for name in killed]
    found += [
        f"nsqd {address} was there at the start and does not answer now." for address in backlog.unreachable
    ]
    gone = set(backlog.unreachable)
    found += [
        f"Connections to nsqd {address} broke during the run." for address in lost if address not in gone
    ]
    texts = list(errors)
    for part, meaning in _MEANINGS:
        if example := next((text for text in texts if part.lower() in text.lower()), None):
            found.append(f"{meaning} ({example}).")
            break
    return found
