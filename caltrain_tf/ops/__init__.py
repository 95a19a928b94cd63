"""Pure functions in `keras.ops` that losses and metrics are made of."""
