"""Models of commonly exported architectures, written by both PyTorch exporters and skl2onnx.

    python -m corpus.export [NAME ...]     export them again (PyTorch, skl2onnx) into graphs/
    python -m corpus.page [--write]        run them, and write docs/corpus.md

Both run in the folder tests.
"""
