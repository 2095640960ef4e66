"""One append-only log of one origin: frames, files, recovery. It knows no topic, no channel and no socket."""
