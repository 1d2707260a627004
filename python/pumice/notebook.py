"""What `%load_ext pumice` adds to IPython: the cell magic `%%glsl`."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from ._pumice import Error, ShaderCompileError
from .html import compile_error_html
from .kernel import Kernel


class _Failure:
    """A compile error as a notebook and a terminal show it."""

    def __init__(self, error: ShaderCompileError) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"ShaderCompileError:\n{self.error}"

    def _repr_html_(self) -> str:
        return compile_error_html(self.error)


def _pairs(option: str, given: list[str] | None, convert: Callable[[str], Any]) -> dict[str, Any]:
    pairs = {}
    for one in given or []:
        name, equals, value = one.partition("=")
        try:
            pairs[name] = convert(value) if equals else convert("1")
        except ValueError:
            raise UsageError(f"%%glsl: {option} {one}: expected NAME=NUMBER") from None
    return pairs


def _number(text: str) -> float:
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


@magics_class
class GlslMagics(Magics):
    @magic_arguments()
    @argument("name", help="the variable that becomes the kernel")
    @argument("--macro", "-D", action="append", metavar="NAME=TEXT", help="a macro; may be given again")
    @argument(
        "--spec", "-s", action="append", metavar="NAME=NUMBER", help="a specialization constant; may be given again"
    )
    @argument("--context", metavar="NAME", help="the variable that holds the Context; else the default one")
    @argument("--debug", action="store_true", help="check accesses of arrays in buffers against their bounds")
    @argument("--show", action="store_true", help="show the kernel's arguments below the cell")
    @cell_magic
    def glsl(self, line: str, cell: str) -> None:
        """Makes a Kernel of the cell's GLSL and puts it into a variable.

        Where the text does not compile the errors are shown, and the variable stays as it was.
        """
        assert self.shell is not None
        namespace = self.shell.user_ns
        options = parse_argstring(self.glsl, line)
        if not options.name.isidentifier() or keyword.iskeyword(options.name):
            raise UsageError(f"%%glsl: expected the name of a variable, given '{options.name}'")
        if options.context and options.context not in namespace:
            raise UsageError(f"%%glsl: no variable '{options.context}'")
        macros = _pairs("--macro", options.macro, str)
        spec = _pairs("--spec", options.spec, _number)
        try:
            kernel = Kernel(
                cell,
                namespace[options.context] if options.context else None,
                name=options.name,
                macros=macros,
                spec=spec,
                debug=options.debug,
            )
        except ShaderCompileError as error:
            display(_Failure(error))
            return
        except Error as error:
            raise UsageError(f"%%glsl: {type(error).__name__}: {error}") from None
        namespace[options.name] = kernel
        if options.show:
            display(kernel)


def load(shell: InteractiveShell) -> None:
    shell.register_magics(GlslMagics)
