"""The cell magic `%%glsl`, which `%load_ext pumice` adds to IPython."""

from __future__ import annotations

import keyword
import shlex
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from .._pumice import Error, ShaderCompileError
from ..base.html import compile_error_html
from ..device.kernel import Kernel


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


def _sizes(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"%%glsl: --local-size {text}: expected one to three numbers, as 64 or 8,8") from None


def _number(text: str) -> float:
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


_MAGIC = "%%glsl"


def _empty_cell(lines: list[str]) -> list[str]:
    """Turns a cell magic without a cell into a line magic: IPython refuses it before the magic sees it."""
    is_alone = lines and lines[0].startswith(_MAGIC) and not "".join(lines[1:]).strip()
    return [lines[0].removeprefix("%")] if is_alone else lines


@magics_class
class GlslMagics(Magics):
    """The magics that IPython registers."""

    @magic_arguments()
    @argument("name", nargs="?", default="", help="the variable that becomes the kernel")
    @argument("--help", "-h", action="store_true", help="show this text")
    @argument("--macro", "-D", action="append", metavar="NAME=TEXT", help="a macro; may be given again")
    @argument(
        "--spec", "-s", action="append", metavar="NAME=NUMBER", help="a specialization constant; may be given again"
    )
    @argument("--local-size", metavar="X[,Y[,Z]]", help="invocations of a workgroup, of a text that declares none")
    @argument("--context", metavar="NAME", help="the variable that holds the Context; else the default one")
    @argument("--debug", action="store_true", help="check accesses of arrays in buffers against their bounds")
    @argument("--show", action="store_true", help="show the kernel's arguments below the cell")
    @line_cell_magic
    def glsl(self, line: str, cell: str | None = None) -> None:
        """Makes a Kernel of the cell's GLSL and puts it into a variable.

        Values with spaces stand in quotes: -D "SUM=a + b". Where the text does not compile the errors are shown, and the
        variable stays as it was.
        """
        assert self.shell is not None
        namespace = self.shell.user_ns
        try:
            options = self.glsl.parser.parse_args(shlex.split(line))
        except ValueError as error:
            raise UsageError(f"%%glsl: {line}: {error}") from None
        if options.help:
            print(self.glsl.parser.format_help().replace("%glsl", _MAGIC).replace("%%%", "%%"))
            return
        if not options.name:
            raise UsageError("%%glsl: the name of the variable is required; %%glsl --help shows the options")
        if cell is None:
            raise UsageError("%%glsl: expected the text of a shader below the first line of the cell")
        if not options.name.isidentifier() or keyword.iskeyword(options.name):
            raise UsageError(f"%%glsl: expected the name of a variable, given '{options.name}'")
        if options.context and options.context not in namespace:
            raise UsageError(f"%%glsl: no variable '{options.context}'")
        macros = _pairs("--macro", options.macro, str)
        spec = _pairs("--spec", options.spec, _number)
        try:
            kernel = Kernel(
                f"\n{cell}",  # the magic's own line counts too, so that messages name the lines of the cell
                namespace[options.context] if options.context else None,
                name=options.name,
                macros=macros,
                spec=spec,
                debug=options.debug,
                local_size=_sizes(options.local_size),
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
    """Registers the magics in a shell; it may be called again."""
    shell.register_magics(GlslMagics)
    cleanup = shell.input_transformers_cleanup
    if _empty_cell not in cleanup:
        cleanup.append(_empty_cell)
