"""The NSQ wire formats: bytes in, typed values out. No sockets, no clocks."""
