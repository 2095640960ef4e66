"""The V2 session, pure: bytes of one client in, changes at the broker and bytes out."""
