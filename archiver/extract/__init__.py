"""The text of attachments, found in separate processes with limits.

with Extractor(processes=2) as extractor:
    extraction = extractor.extract(data, name="invoice.pdf", declared_type="application/pdf")
"""

from archiver.extract.extraction import EXTRACTOR_VERSION, Extraction, Page, Picture, State
from archiver.extract.extractor import Extractor

__all__ = ["EXTRACTOR_VERSION", "Extraction", "Extractor", "Page", "Picture", "State"]
