"""The engine's nouns as Python has them: contexts, tensors, images, kernels."""
