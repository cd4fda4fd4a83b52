"""The job queue. The only place that knows BullMQ, beside workers.runtime."""
