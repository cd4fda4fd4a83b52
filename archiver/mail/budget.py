"""One budget per message for everything that is decoded or decompressed, however deeply it is nested."""

from dataclasses import dataclass

from archiver.mail import limits
from archiver.mail.defects import Defects


@dataclass(slots=True)
class DecodeBudget:
    """The number of bytes that encodings and containers of one message may still produce."""

    left: int
    spent: int = 0
    inflated: int = 0
    """Includes what was discarded for exceeding the budget: otherwise, forty bombs would be decompressed one after the
    other."""

    @classmethod
    def of(cls, size: int) -> "DecodeBudget":
        """For a message of this size.

        At least a mebibyte is allowed: decoding it takes about a millisecond, and a short note that a mail program
        compressed (S/MIME, RTF with its built-in dictionary) may well be more than 20 times its size.
        """
        return cls(min(limits.DECODED_BYTES, max(limits.DECODED_LEAST_BYTES, limits.DECODED_TIMES * size)))

    @property
    def inflatable(self) -> int:
        """How many bytes a decompressor may return."""
        return max(0, min(self.left, self.left + self.spent - self.inflated))

    def take(self, size: int, defects: Defects) -> bool:
        """False, with a defect, if this exceeds what is left. The encoded content then stays available as a file of the
        message."""
        if size > self.left:
            defects.add("decodes_to_too_much")
            return False
        self.left -= size
        self.spent += size
        return True
