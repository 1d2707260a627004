"""The command `pumice generate`: generate text from a model folder and a prompt."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from .._pumice import Context
from ..base.errors import InputError
from ..base.printable_text import shorten_and_escape


def add_generate_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `pumice generate`."""
    command.add_argument("folder", help="a folder as onnxruntime-genai or optimum writes it")
    prompt_group = command.add_mutually_exclusive_group(required=True)
    prompt_group.add_argument("--prompt", "-p", metavar="TEXT", help="the text that goes on")
    prompt_group.add_argument("--prompt-file", metavar="FILE", help="a file with that text; - for standard input")
    command.add_argument(
        "--chat", action="store_true", help="the prompt is a user's message, by the folder's chat template"
    )
    command.add_argument("--max-tokens", type=int, default=128, metavar="N", help="the most tokens (default: 128)")
    command.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0: the likeliest token each time (default)"
    )
    command.add_argument("--top-k", type=int, default=0, metavar="K", help="draw from the K likeliest tokens alone")
    command.add_argument(
        "--top-p", type=float, default=1.0, metavar="P", help="draw from this share of the probability"
    )
    command.add_argument("--repetition-penalty", type=float, default=1.0, metavar="R", help="above 1: repeat less")
    command.add_argument("--seed", type=int, default=None, metavar="S", help="the same text each time")
    command.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end at this text")
    command.add_argument(
        "--speculate",
        default=None,
        metavar="NAME",
        help="propose tokens and check several at once: ngram, or the folder of a smaller model of the same words",
    )
    command.add_argument(
        "--num-draft-tokens",
        "--width",
        type=int,
        default=None,
        metavar="N",
        help="tokens proposed at once (default: 3)",
    )
    command.add_argument("--device", default="", metavar="NAME", help="a device, as PUMICE_DEVICE names it")
    command.add_argument("--precision", default=None, metavar="NAME", help="fp32, fp16 or bf16 (default: the model's)")
    command.add_argument(
        "--cache",
        default=None,
        metavar="NAME",
        help="int8: caches of half of float16's bytes (default: the precision's type)",
    )
    command.add_argument("--time", action="store_true", help="say on standard error how long it took")


def _read_prompt(arguments: argparse.Namespace) -> str:
    if arguments.prompt is not None:
        return str(arguments.prompt)
    if arguments.prompt_file == "-":
        return sys.stdin.read()
    try:
        with open(arguments.prompt_file, encoding="utf-8") as file:
            return file.read()
    except ValueError as error:
        raise InputError(f"{arguments.prompt_file}: expected a text in UTF-8: {error}") from None


def _strip_control_characters(piece: str) -> str:
    """Return the piece with control characters escaped, except line breaks and tabs, if the output is a terminal."""
    return "".join(c if c in "\n\t" else shorten_and_escape(c) for c in piece) if sys.stdout.isatty() else piece


def run_generate_command(arguments: argparse.Namespace) -> int:
    """Run `pumice generate`: print the generated text piece by piece. Return the exit status."""
    from ..text import Generator
    from ..text.speculation import NGRAM

    prompt = _read_prompt(arguments)
    context = Context(arguments.device) if arguments.device else None
    names = ("max_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "seed", "stop", "num_draft_tokens")
    options: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    with contextlib.ExitStack() as stack:
        options["speculate"] = arguments.speculate
        if arguments.speculate not in (None, NGRAM):
            options["speculate"] = stack.enter_context(Generator(arguments.speculate, context, arguments.precision))
        generator = stack.enter_context(Generator(arguments.folder, context, arguments.precision, arguments.cache))
        messages = [{"role": "user", "content": prompt}]
        model_prompt = generator.apply_template(messages) if arguments.chat else prompt
        for piece in generator.stream(model_prompt, **options):
            print(_strip_control_characters(piece), end="", flush=True)
        print()
        if arguments.time:
            timing = generator.timing
            rate = f"{timing.tokens_per_second:.1f} tokens/s" if timing.tokens > 1 else "one token"
            rate += f" in {timing.runs} runs" if arguments.speculate else ""
            device = f"{generator.context.info.name}, {generator.precision}, caches of {generator.cache}"
            print(
                f"{device}: first token after {timing.first_seconds:.3f} s, {timing.tokens} tokens, {rate}",
                file=sys.stderr,
            )
    return 0
