"""One file a job."""
