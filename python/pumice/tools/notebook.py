"""The cell magic `%%glsl`, which `%load_ext pumice` adds to IPython."""

from __future__ import annotations

import ast
import keyword
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from .._pumice import Error, ShaderCompileError, UnsupportedError
from ..base.html import render_compile_error, render_titled_text
from ..device.kernel import Kernel

if TYPE_CHECKING:
    from ..profiling.profile import Profile


class _CompileErrorDisplay:
    """A compile error, formatted for notebooks and terminals."""

    def __init__(self, error: ShaderCompileError) -> None:
        self.error = error

    def __repr__(self) -> str:
        return f"ShaderCompileError:\n{self.error}"

    def _repr_html_(self) -> str:
        return render_compile_error(self.error)


class _AssemblyDisplay:
    """The driver's disassembly of a kernel; if there is none, the reason and the SPIR-V disassembly."""

    def __init__(self, kernel: Kernel) -> None:
        try:
            self.text = kernel.statistics().disassembly()
        except UnsupportedError as error:
            self.text = f"; {error}\n{kernel.disassemble()}"
        self.title = f"What runs of kernel {kernel.name}"

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return render_titled_text(self.title, self.text)


def _parse_assignments(option: str, pair_texts: list[str] | None, convert: Callable[[str], Any]) -> dict[str, Any]:
    pairs = {}
    for pair_text in pair_texts or []:
        name, equals, value = pair_text.partition("=")
        try:
            pairs[name] = convert(value) if equals else convert("1")
        except ValueError:
            raise UsageError(f"%%glsl: {option} {pair_text}: expected NAME=NUMBER") from None
    return pairs


def _parse_local_size(text: str | None) -> tuple[int, ...] | None:
    try:
        return None if text is None else tuple(int(size_text) for size_text in text.split(","))
    except ValueError:
        raise UsageError(f"%%glsl: --local-size {text}: expected one to three numbers, as 64 or 8,8") from None


def _parse_number(text: str) -> float:
    try:
        return int(text, 0)
    except ValueError:
        return float(text)


_MAGIC_NAME = "%%glsl"


def _convert_empty_cell(lines: list[str]) -> list[str]:
    """Turn a %%glsl cell without a body into a line magic, because IPython rejects a cell magic without a body."""
    has_no_body = lines and lines[0].startswith(_MAGIC_NAME) and not "".join(lines[1:]).strip()
    return [lines[0].removeprefix("%")] if has_no_body else lines


@magics_class
class GlslMagics(Magics):
    """The magic %%glsl."""

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
    @argument(
        "--time", metavar="ARGUMENTS", help="time the kernel on the device with these arguments of a call, in quotes"
    )
    @argument(
        "--profile", metavar="ARGUMENTS", help="call the kernel with these arguments and show a profile of the call"
    )
    @argument("--disassemble", action="store_true", help="show what the driver made of it, else its SPIR-V")
    @line_cell_magic
    def glsl(self, line: str, cell: str | None = None) -> None:
        """Compile the cell's GLSL to a Kernel and assign it to a variable.

        Quote values that contain spaces: -D "SUM=a + b". A compile error is displayed and raised as ShaderCompileError, so that the
        notebook stops; the variable keeps its old value.
        """
        assert self.shell is not None
        namespace = self.shell.user_ns
        try:
            options = self.glsl.parser.parse_args(shlex.split(line))
        except ValueError as error:
            raise UsageError(f"%%glsl: {line}: {error}") from None
        if options.help:
            print(self.glsl.parser.format_help().replace("%glsl", _MAGIC_NAME).replace("%%%", "%%"))
            return
        if not options.name:
            raise UsageError("%%glsl: the name of the variable is required; %%glsl --help shows the options")
        if cell is None:
            raise UsageError("%%glsl: expected the source of a shader below the first line of the cell")
        if not options.name.isidentifier() or keyword.iskeyword(options.name):
            raise UsageError(f"%%glsl: expected the name of a variable, given '{options.name}'")
        if options.context and options.context not in namespace:
            raise UsageError(f"%%glsl: no variable '{options.context}'")
        macros = _parse_assignments("--macro", options.macro, str)
        spec = _parse_assignments("--spec", options.spec, _parse_number)
        try:
            kernel = Kernel(
                f"\n{cell}",  # the empty line replaces the magic's line, so that messages have the cell's line numbers
                namespace[options.context] if options.context else None,
                name=options.name,
                macros=macros,
                spec=spec,
                debug=options.debug,
                local_size=_parse_local_size(options.local_size),
            )
        except ShaderCompileError as error:
            display(_CompileErrorDisplay(error))
            # IPython prints the returned list instead of a traceback; the error is already displayed.
            error._render_traceback_ = list  # type: ignore[attr-defined]
            raise
        except Error as error:
            raise UsageError(f"%%glsl: {type(error).__name__}: {error}") from None
        namespace[options.name] = kernel
        if options.show:
            display(kernel)
        if options.time is not None:
            display(kernel.time(**self._evaluate_arguments("--time", options.time)))
        if options.profile is not None:
            display(self._profile_call(kernel, options.profile))
        if options.disassemble:
            display(_AssemblyDisplay(kernel))

    def _evaluate_arguments(self, option: str, text: str) -> dict[str, Any]:
        """Evaluate keyword arguments, such as "x=x, threads=x.size", with the notebook's variables."""
        assert self.shell is not None
        try:
            tree = ast.parse(f"_({text})", mode="eval").body
        except SyntaxError as error:
            raise UsageError(f"%%glsl: {option} {text}: {error.msg}") from None
        is_call = isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)
        if (
            not isinstance(tree, ast.Call)
            or not is_call
            or tree.args
            or any(keyword_argument.arg is None for keyword_argument in tree.keywords)
        ):
            raise UsageError(f'%%glsl: {option} {text}: expected arguments by name, as "x=x, y=y, threads=x.size"')
        namespace = self.shell.user_ns
        return {
            str(keyword_argument.arg): eval(compile(ast.Expression(keyword_argument.value), option, "eval"), namespace)
            for keyword_argument in tree.keywords
        }  # eval is safe here, because the notebook's user could run the text as a cell

    def _profile_call(self, kernel: Kernel, text: str) -> Profile:
        """Profile one call, after a warm-up call."""
        from ..profiling.profile import profile

        arguments = self._evaluate_arguments("--profile", text)
        kernel(**arguments)
        with profile("dispatch") as call_profile:
            kernel(**arguments)
        return call_profile


def register_magics(shell: InteractiveShell) -> None:
    """Register the magics in a shell. May be called repeatedly."""
    shell.register_magics(GlslMagics)
    cleanup = shell.input_transformers_cleanup
    if _convert_empty_cell not in cleanup:
        cleanup.append(_convert_empty_cell)
