"""The V2 session, pure: bytes of one client go in, changes at the broker and bytes come out."""
