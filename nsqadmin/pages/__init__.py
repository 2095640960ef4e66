"""Routes for people: pages, confirmations, the files they need."""
