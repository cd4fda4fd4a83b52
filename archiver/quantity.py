"""Counts as people read them: `1 message`, `1,234 messages`, `2 copies`."""


def quantity(number: int, noun: str) -> str:
    """`noun` is in the singular, and is the last word of its phrase if it has several ("dead letter")."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def time_span(seconds: float) -> str:
    """A rough length of time: `40 s`, `12 min`, `5 h`, `3 days`."""
    if seconds >= 2 * 86400:
        return quantity(round(seconds / 86400), "day")
    if seconds >= 2 * 3600:
        return f"{round(seconds / 3600)} h"
    return f"{round(seconds / 60)} min" if seconds > 90 else f"{round(seconds)} s"
