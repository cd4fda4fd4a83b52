"""Jobs of several steps: runs and steps are rows in Postgres, jobs in the queue only wake a worker (docs/development.md)."""
