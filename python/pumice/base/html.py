"""Render the engine's objects as HTML for notebooks. Imported on first display."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from .._pumice import Context, DeviceInfo, Error, Kernel, Shader, ShaderCompileError, Tensor, TensorDesc

_MOST_ROWS = 200  # maximum rows shown per table; the object itself has all of them
_MOST_VALUES = 64  # maximum elements of a tensor that is downloaded for display
# Styles are inline, because notebook pages override the alignment and fonts of table cells.
_MARK = "background:rgba(220,60,60,.2)"
_LEFT = "text-align:left"
_TEXT = "font-family:monospace;white-space:pre;text-align:left"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], marked: Collection[int] = ()) -> str:
    """Return an HTML table with escaped cells.

    marked: indices of highlighted rows, which are shown even if the table is truncated before them.
    """
    kept = list(rows)
    shown = [i for i in range(len(kept)) if i < _MOST_ROWS or i in marked]
    lines = [_row("td", kept[i], _MARK if i in marked else "") for i in shown]
    if len(shown) < len(kept):
        more = f"... and {len(kept) - len(shown)} more"
        lines.append(f'<tr><td colspan="{len(head)}" style="{_LEFT}">{more}</td></tr>')
    return f"<table><thead>{_row('th', head)}</thead><tbody>{''.join(lines)}</tbody></table>"


def _cell(tag: str, content: Any, style: str = "") -> str:
    return f'<{tag} style="{_LEFT}{style and ";" + style}">{html.escape(str(content))}</{tag}>'


def _row(tag: str, cells: Sequence[Any], style: str = "") -> str:
    return f"<tr>{''.join(_cell(tag, one, style) for one in cells)}</tr>"


def facts(title: str, pairs: dict[str, Any]) -> str:
    """Return a title above a table of names and values."""
    lines = "".join(f"<tr>{_cell('th', key)}{_cell('td', value)}</tr>" for key, value in pairs.items())
    return f"<b>{html.escape(title)}</b>" + (f"<table>{lines}</table>" if pairs else "")


def text(shown: str) -> str:
    """Return preformatted monospace text."""
    return f'<pre style="{_TEXT}">{html.escape(shown)}</pre>'


def text_below(title: str, shown: str) -> str:
    """Return monospace text below a title."""
    return f"<b>{html.escape(title)}</b>{text(shown)}"


def interface_rows(shader: Shader) -> list[tuple[str, str, str, str]]:
    """Return (name, access, type, binding or offset) of every buffer, image, push constant and specialization constant in a shader."""
    interface = shader.interface
    rows = []
    for one in interface["bindings"]:
        names = ", ".join([one["name"], *one["aliases"]])
        access = "uniform" if one["uniform"] else one["access"].replace("_", " and ")
        rows.append((names, access, f"{_type(one)}[]", f"binding {one['binding']}"))
    for one in interface["images"]:
        access = "sampled" if one["sampled"] else "storage"
        rows.append((one["name"], access, f"image, {one['dimensions']}-D", f"binding {one['binding']}"))
    for one in interface["push_constants"]:
        if not one["name"].split(".")[-1].startswith("pumice_"):
            count = f"[{one['count']}]" if one["count"] > 1 else ""
            rows.append((one["name"], "push constant", _type(one) + count, f"byte {one['offset']}"))
    for one in interface["spec_constants"]:
        if one["id"] not in interface["local_size_ids"]:
            rows.append((one["name"], "specialization constant", one["type"], f"id {one['id']}"))
    return rows


def _type(entry: dict[str, Any]) -> str:
    if entry["type"] == "other":
        return "structure"
    return str(entry["type"]) + (f" x {entry['components']}" if entry["components"] > 1 else "")


def local_size_text(shader: Shader) -> str:
    """Return the workgroup size, and whether the source declares it or the engine chose it."""
    interface = shader.interface
    chosen = "chosen by the engine" if interface["is_chosen"] else "declared"
    return f"{' x '.join(map(str, interface['local_size']))}, {chosen}"


def _shader_body(shader: Shader) -> str:
    return table(("name", "access", "type", "place"), interface_rows(shader))


def _kernel(kernel: Kernel) -> str:
    body = facts(
        f"Kernel {kernel.name}",
        {"local size": local_size_text(kernel.shader), "built for": ", ".join(kernel.variants)},
    )
    source = f"<details><summary>source</summary>{text(kernel.source)}</details>"
    return body + _shader_body(kernel.shader) + source


def _shader(shader: Shader) -> str:
    pairs = {
        "storage": shader.options.storage,
        "local size": local_size_text(shader),
        "SPIR-V": f"{len(shader.spirv):,} bytes",
        "needs": ", ".join(shader.interface["capabilities"]),
        "warnings": len(shader.warnings),
    }
    return facts(f"Shader {shader.name}", pairs) + _shader_body(shader)


def _desc(desc: TensorDesc) -> dict[str, Any]:
    pairs: dict[str, Any] = {"dtype": desc.dtype, "shape": tuple(desc.shape), "bytes": f"{desc.bytes:,}"}
    if not desc.is_packed:
        pairs["strides"] = tuple(desc.strides)
    return pairs


def _tensor(tensor: Tensor) -> str:
    try:
        shown = facts("Tensor", {**_desc(tensor.desc), "device": tensor.context.info.name})
        small = math.prod(tensor.shape) <= _MOST_VALUES
        return shown + (text(str(tensor.numpy())) if small else "")
    except Error as error:  # the tensor is closed, or lost with its device
        return text_below("Tensor", str(error))


def _device(info: DeviceInfo) -> dict[str, Any]:
    return {
        "kind": info.kind,
        "driver": f"{info.driver} {info.driver_info}",
        "Vulkan": info.api_version,
        "memory": f"{info.memory_bytes / (1 << 30):.1f} GiB",
        "uuid": info.uuid,
    }


def devices_html(devices: Sequence[DeviceInfo], note: str = "") -> str:
    """Return a table of the devices, or a sentence that explains why there are none. note: which devices are hidden and why."""
    if not devices:
        return text_below("No Vulkan device", note or "There is no Vulkan loader, or no driver for it.")
    rows = [(info.index, info.name, *_device(info).values()) for info in devices]
    shown = table(("", "name", *_device(devices[0])), rows)
    return shown + text_below("Hidden devices", note) if note else shown


def _context(context: Context) -> str:
    try:
        return facts(f"Context on {context.info.name}", {**_device(context.info), "chosen": context.choice})
    except Error as error:
        return text_below("Context", str(error))


def html_of(shown: Any) -> str:
    """Return HTML for a Kernel, Shader, Tensor, TensorDesc, Context or DeviceInfo."""
    if isinstance(shown, Kernel):
        return _kernel(shown)
    if isinstance(shown, Shader):
        return _shader(shown)
    if isinstance(shown, Tensor):
        return _tensor(shown)
    if isinstance(shown, TensorDesc):
        return facts("TensorDesc", _desc(shown))
    if isinstance(shown, DeviceInfo):
        return facts(shown.name, _device(shown))
    return _context(shown)


def compile_error_html(error: ShaderCompileError) -> str:
    """Return each message of a compile error with its highlighted source line below."""
    parts = []
    for message in error.messages:
        said, *below = message.split("\n")
        marked = html.escape(below[0]) if below else ""
        caret = html.escape("\n".join(below[1:]))
        shown = f'<span style="{_TEXT};{_MARK}">{marked}</span>\n{caret}' if below else ""
        parts.append(f'<div><b>{html.escape(said)}</b><pre style="{_TEXT}">{shown}</pre></div>')
    return "".join(parts)
