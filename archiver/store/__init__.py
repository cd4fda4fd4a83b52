"""The archive itself: packs of frames that are never rewritten."""
