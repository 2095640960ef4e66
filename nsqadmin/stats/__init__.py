"""The figures of a cluster and their meaning: records, totals, rates, judgement; PURE."""
