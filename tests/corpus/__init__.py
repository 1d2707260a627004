"""Models of the architectures that people export, as both of PyTorch's exporters and skl2onnx write them.

    python -m corpus.export [NAME ...]     export them again (PyTorch, skl2onnx) into graphs/
    python -m corpus.page [--write]        run them, and write docs/corpus.md

Both run in the folder tests.
"""
