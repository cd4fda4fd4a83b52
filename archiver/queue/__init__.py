"""The job queue. Only this package and workers.runtime use BullMQ."""
