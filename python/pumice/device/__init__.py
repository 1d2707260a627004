"""Python classes for contexts, tensors, images and kernels."""
