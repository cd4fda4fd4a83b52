"""What the packs alone bring back: rebuild, replay of the journal, adoption of unknown packs."""
