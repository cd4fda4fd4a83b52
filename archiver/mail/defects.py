"""What is wrong with a message, as short, stable codes; some have a detail after a colon."""

from archiver.mail import limits

_DETAIL_CHARS = 60


class Defects:
    """Collects the defects of one message: each once, in order of appearance, up to the limit."""

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
