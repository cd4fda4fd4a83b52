"""What the product does, one noun per module; the web, the API and the command line call these."""
