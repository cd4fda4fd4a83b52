"""How a batch becomes durable: bytes into packs, then rows in one Postgres transaction."""
