"""Commands of daily operation: state, checks, queues, alerts, dead letters."""
