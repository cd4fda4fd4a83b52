"""Extracts the text of attachments, in separate processes with limits.

with Extractor(processes=2) as extractor:
    extraction = extractor.extract(data, name="invoice.pdf", declared_type="application/pdf")
"""

from archiver.extract.extraction import EXTRACTOR_VERSION, Extraction, ExtractionState, Picture, TextPage

__all__ = ["EXTRACTOR_VERSION", "Extraction", "ExtractionState", "Picture", "TextPage"]
