"""The client under faults: kills, bad and slow lines, frozen nsqd, a hundred nsqd, failing discovery."""
