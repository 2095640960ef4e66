"""What the model of a fleet predicts beside what is measured."""
