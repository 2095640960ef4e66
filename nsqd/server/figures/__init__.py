"""What nsqd tells of itself in numbers."""
