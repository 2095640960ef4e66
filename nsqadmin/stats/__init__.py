"""The statistics of a cluster: records, totals, rates, problems; PURE."""
