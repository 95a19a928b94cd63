"""A training loop over any `tf.distribute` strategy."""
