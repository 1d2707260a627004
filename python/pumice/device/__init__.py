"""Python classes of contexts, tensors, images and kernels."""
