"""Networks that return logits."""
