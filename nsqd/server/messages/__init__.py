"""Reading messages without consuming them: parsing the query, finding the messages, showing them."""
