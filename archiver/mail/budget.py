"""One allowance per message for everything that is decoded or inflated, however deeply it is nested."""

from dataclasses import dataclass

from archiver.mail import limits
from archiver.mail.defects import Defects


@dataclass(slots=True)
class DecodeBudget:
    """Bytes that may still come out of encodings and containers while one message is read."""

    left: int
    spent: int = 0
    inflated: int = 0
    """Also what was thrown away because it was too much: forty bombs must not be inflated in vain one after the other."""

    @classmethod
    def of(cls, size: int) -> "DecodeBudget":
        """For a message of this size.

        The least that is allowed is a mebibyte: it costs a millisecond whoever sends it, and a short note that a mail program
        compressed (S/MIME, RTF with its built-in dictionary) may well be more than 20 times its size.
        """
        return cls(min(limits.DECODED_BYTES, max(limits.DECODED_LEAST_BYTES, limits.DECODED_TIMES * size)))

    @property
    def inflatable(self) -> int:
        """How much a decompressor may give."""
        return max(0, min(self.left, self.left + self.spent - self.inflated))

    def take(self, size: int, defects: Defects) -> bool:
        """False, and a defect, if this is more than is left; what is refused stays as it is, in a file of the message."""
        if size > self.left:
            defects.add("decodes_to_too_much")
            return False
        self.left -= size
        self.spent += size
        return True
