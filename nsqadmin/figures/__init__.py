"""What the numbers of a cluster are and mean: records, totals, rates, judgement; PURE."""
