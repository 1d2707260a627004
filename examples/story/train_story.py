"""Trains a small decoder on the stories of stories.py and writes its folder into python/pumice/data/story.

    pip install tokenizers onnx && python examples/story/train_story.py

Plain NumPy, one fixed seed, five minutes on one core of a CPU. The text is made by the grammar in stories.py, so that text and
weights are as free as the rest of the repository. held_back.txt has stories of another seed, for the perplexity.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from folder import write
from network import Array, Sizes, Tape, Weights, initial
from stories import stories
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TARGET = Path(__file__).parents[2] / "python" / "pumice" / "data" / "story"
SEED, HELD_BACK_SEED = 11, 12
COUNT = 8000
END = "<|end|>"
ROWS, BATCH = 160, 8
PEAK_RATE = 3e-3


def tokenizer_of(texts: list[str], words: int) -> Tokenizer:
    """A tokenizer of bytes and of pairs that are frequent in the texts."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=words, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    return made


def trained(tokens: Array, sizes: Sizes, steps: int) -> Weights:
    """Weights after `steps` steps of Adam on crops of the row of tokens."""
    weights = initial(sizes, SEED)
    first = {name: np.zeros_like(w) for name, w in weights.items()}
    second = {name: np.zeros_like(w) for name, w in weights.items()}
    chance = np.random.default_rng(SEED)
    began, mean = time.time(), 0.0
    for step in range(1, steps + 1):
        begins = chance.integers(0, len(tokens) - ROWS - 1, BATCH)
        crops = tokens[begins[:, None] + np.arange(ROWS + 1)]
        tape = Tape(weights, sizes, crops[:, :-1])
        loss, d_logits = tape.loss(crops[:, 1:])
        gradients = tape.back(d_logits)
        norm = np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients.values()))
        rate = PEAK_RATE * min(step / 50, 1) * (0.02 + 0.98 * (0.5 + 0.5 * np.cos(np.pi * step / steps)))
        for name, g in gradients.items():
            g = g * np.float32(min(1, 1 / norm))
            first[name] += np.float32(0.1) * (g - first[name])
            second[name] += np.float32(0.02) * (g * g - second[name])
            update = first[name] / (1 - 0.9**step) / (np.sqrt(second[name] / (1 - 0.98**step)) + 1e-8)
            weights[name] -= (rate * update).astype(np.float32)
        mean = loss if step == 1 else 0.95 * mean + 0.05 * loss
        if step % 50 == 0 or step == steps:
            print(f"step {step}: loss {mean:.3f}, {time.time() - began:.0f} s", flush=True)
    return weights


def main() -> None:
    options = argparse.ArgumentParser(description="Trains the decoder of stories.")
    options.add_argument("--steps", type=int, default=1500)
    options.add_argument("--target", type=Path, default=TARGET)
    given = options.parse_args()
    texts = stories(COUNT, SEED)
    tokenizer = tokenizer_of(texts, Sizes().words)
    end: int = tokenizer.get_vocab()[END]
    encoded = (np.array([end, *one.ids], np.int64) for one in tokenizer.encode_batch(texts))
    tokens = np.concatenate([*encoded])
    print(f"{len(texts)} stories of {sum(map(len, texts))} characters, {len(tokens)} tokens", flush=True)
    sizes = Sizes(words=tokenizer.get_vocab_size())
    write(given.target, sizes, trained(tokens, sizes, given.steps), tokenizer, end)
    (given.target / "model.onnx.data").chmod(0o644)
    (given.target / "held_back.txt").write_text("\n".join(stories(20, HELD_BACK_SEED)) + "\n")


if __name__ == "__main__":
    main()
