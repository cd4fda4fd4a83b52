"""Where mail comes from. One module or folder per kind; nothing in here imports the rest of the product."""
