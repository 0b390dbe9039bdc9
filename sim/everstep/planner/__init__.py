"""Plans a training run: the arithmetic of failures, checkpoints and spares, with its checks."""
