"""What was wrong with a message: short, stable codes, some with a detail after a colon."""

from archiver.mail import limits

_DETAIL_CHARS = 60


class Defects:
    """Collects defects while one message is read: each once, in order of appearance, not more than the limit."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}

    def add(self, code: str, detail: str = "") -> None:
        if detail:
            code = f"{code}: {detail[:_DETAIL_CHARS]}"
        if len(self._seen) < limits.DEFECTS:
            self._seen[code] = None

    def as_tuple(self) -> tuple[str, ...]:
        return tuple(self._seen)

    def __bool__(self) -> bool:
        return bool(self._seen)
