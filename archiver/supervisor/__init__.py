"""The embedded servers and the supervisor behind `archiver up`."""
