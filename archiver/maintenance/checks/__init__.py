"""Whether everything is whole and running: verify, doctor, health."""
