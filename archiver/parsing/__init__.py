"""Mail is parsed in child processes with limits on time and memory, which can be killed."""
