"""What runs when nothing is configured: a provider that needs no vendor, and a month of history to look at."""
