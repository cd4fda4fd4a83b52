"""Counts as people read them: `1 message`, `1,234 messages`, `2 copies`."""


def quantity(number: int, noun: str) -> str:
    """`noun` is in the singular, and is the last word of its phrase if it has several ("dead letter")."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
