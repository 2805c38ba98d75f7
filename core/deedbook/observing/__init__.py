"""What can be counted and shown of ledgers: layers, figures, and the forms that other programs read them in."""
