from nsqd.engine.latency import MAX_SAMPLES, Latency

SECOND = 1_000_000_000


def test_quantiles_are_exact_over_samples():
    latency = Latency((1.0, 0.99, 0.5), 600 * SECOND, now_ns=0)
    for value in range(1, 101):
        latency.add(value, now_ns=1)

    assert latency.snapshot(1) == {
        "count": 100,
        "percentiles": [
            {"quantile": 1.0, "value": 100},
            {"quantile": 0.99, "value": 99},
            {"quantile": 0.5, "value": 50},
        ],
    }


def test_latency_without_samples_is_zero():
    assert Latency((0.5,), 10, 0).snapshot(0) == {"count": 0, "percentiles": [{"quantile": 0.5, "value": 0}]}


def test_samples_leave_after_a_whole_window_at_latest():
    latency = Latency((0.5,), 100, now_ns=0)
    latency.add(7, now_ns=10)

    assert latency.snapshot(60)["count"] == 1
    assert latency.snapshot(110)["count"] == 0


def test_several_channels_are_merged():
    left, right = Latency((0.5,), 100, 0), Latency((0.5,), 100, 0)
    left.add(1, 1)
    right.add(3, 1)
    right.add(5, 1)

    assert left.merged([left, right], 2) == {"count": 3, "percentiles": [{"quantile": 0.5, "value": 3}]}


def test_memory_is_bounded_while_count_goes_on():
    latency = Latency((0.5,), 1 << 60, 0)
    for value in range(3 * MAX_SAMPLES):
        latency.add(value, 1)

    snapshot = latency.snapshot(1)

    assert snapshot["count"] == 3 * MAX_SAMPLES
    assert sum(map(len, latency._halves)) == MAX_SAMPLES
    assert snapshot["percentiles"][0]["value"] > MAX_SAMPLES
