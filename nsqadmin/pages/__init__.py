"""Routes for people: pages, confirmations, and the files of the pages."""
