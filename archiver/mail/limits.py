"""Hard limits on the cost of one message. What exceeds them is recorded as a defect; the archived bytes are always complete."""

from typing import Final

MESSAGE_BYTES: Final = 64 << 20  # the parser reads at most this much of a message
DECODED_BYTES: Final = 64 << 20  # of everything that is decoded or decompressed in one message
DECODED_TIMES: Final = 20  # the size of the message
DECODED_LEAST_BYTES: Final = 1 << 20
RTF_BYTES: Final = 4 << 20  # of one RTF body, which is decompressed and read in Python

HEADER_BYTES: Final = 4 << 20  # of one header block; 50,000 recipients take about 2 MiB
LEADING_BYTES: Final = 64 << 10  # of postmarks and blank lines before a header block
PART_HEADER_BYTES: Final = 64 << 10
FIELDS: Final = 20_000
ADDRESSES: Final = 100_000  # of one message, all address fields together
COMMENT_DEPTH: Final = 50
REFERENCES: Final = 1_000
PARAMETERS: Final = 500
VALUE_CHARS: Final = 64 << 10  # of one (unfolded) header line that is read as text, such as the subject
ADDRESS_CHARS: Final = 2_000
DATE_CHARS: Final = 200
DEFECTS: Final = 50

PARTS: Final = 10_000
DEPTH: Final = 50
BOUNDARY_CHARS: Final = 512
ATTACHMENTS: Final = 5_000

TEXT_CHARS: Final = 10_000_000  # of all text of one message
HTML_BYTES: Final = 10_000_000
HTML_DEPTH: Final = 100
SPANS: Final = 20_000
EMBEDDED_FILES: Final = 500  # uuencoded or yEnc files in one text part, files in one TNEF
