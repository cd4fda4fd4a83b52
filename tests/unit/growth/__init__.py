"""Does what we write grow faster than its input? Counted in steps, never by the clock."""
