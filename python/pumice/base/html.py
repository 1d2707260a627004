"""Render the engine's objects as HTML for notebooks. Imported on first display."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from .._pumice import Context, DeviceInfo, Error, Kernel, Shader, ShaderCompileError, Tensor, TensorDesc

_MAX_ROWS = 200  # maximum rows per table; further rows are only counted
_MAX_VALUES = 64  # maximum elements of a tensor that is downloaded for display
# Styles are inline, because notebook pages override the alignment and fonts of table cells.
_HIGHLIGHT_STYLE = "background:rgba(220,60,60,.2)"
_LEFT_STYLE = "text-align:left"
_MONOSPACE_STYLE = "font-family:monospace;white-space:pre;text-align:left"


def render_table(head: Sequence[str], rows: Iterable[Sequence[Any]], highlighted: Collection[int] = ()) -> str:
    """Return an HTML table with escaped cells.

    highlighted: indices of rows with a coloured background, which are shown even beyond the row limit.
    """
    all_rows = list(rows)
    visible_rows = [i for i in range(len(all_rows)) if i < _MAX_ROWS or i in highlighted]
    lines = [_render_row("td", all_rows[i], _HIGHLIGHT_STYLE if i in highlighted else "") for i in visible_rows]
    if len(visible_rows) < len(all_rows):
        more = f"... and {len(all_rows) - len(visible_rows)} more"
        lines.append(f'<tr><td colspan="{len(head)}" style="{_LEFT_STYLE}">{more}</td></tr>')
    return f"<table><thead>{_render_row('th', head)}</thead><tbody>{''.join(lines)}</tbody></table>"


def _render_cell(tag: str, content: Any, style: str = "") -> str:
    return f'<{tag} style="{_LEFT_STYLE}{style and ";" + style}">{html.escape(str(content))}</{tag}>'


def _render_row(tag: str, cells: Sequence[Any], style: str = "") -> str:
    return f"<tr>{''.join(_render_cell(tag, cell, style) for cell in cells)}</tr>"


def render_properties(title: str, properties: dict[str, Any]) -> str:
    """Return HTML with a title and a table of property names and values."""
    lines = "".join(
        f"<tr>{_render_cell('th', key)}{_render_cell('td', value)}</tr>" for key, value in properties.items()
    )
    return f"<b>{html.escape(title)}</b>" + (f"<table>{lines}</table>" if properties else "")


def render_preformatted(text: str) -> str:
    """Return HTML that shows the text in a monospace font with its line breaks."""
    return f'<pre style="{_MONOSPACE_STYLE}">{html.escape(text)}</pre>'


def render_titled_text(title: str, text: str) -> str:
    """Return HTML with a title and monospace text below it."""
    return f"<b>{html.escape(title)}</b>{render_preformatted(text)}"


def make_interface_rows(shader: Shader) -> list[tuple[str, str, str, str]]:
    """Return (name, access, type, binding or offset) of every buffer, image, push constant and specialization constant in a shader."""
    interface = shader.interface
    rows = []
    for item in interface["bindings"]:
        names = ", ".join([item["name"], *item["aliases"]])
        access = "uniform" if item["uniform"] else item["access"].replace("_", " and ")
        rows.append((names, access, f"{_format_type(item)}[]", f"binding {item['binding']}"))
    for item in interface["images"]:
        access = "sampled" if item["sampled"] else "storage"
        rows.append((item["name"], access, f"image, {item['dimensions']}-D", f"binding {item['binding']}"))
    for item in interface["push_constants"]:
        if not item["name"].split(".")[-1].startswith("pumice_"):
            count = f"[{item['count']}]" if item["count"] > 1 else ""
            rows.append((item["name"], "push constant", _format_type(item) + count, f"byte {item['offset']}"))
    for item in interface["spec_constants"]:
        if item["id"] not in interface["local_size_ids"]:
            rows.append((item["name"], "specialization constant", item["type"], f"id {item['id']}"))
    return rows


def _format_type(entry: dict[str, Any]) -> str:
    if entry["type"] == "other":
        return "structure"
    return str(entry["type"]) + (f" x {entry['components']}" if entry["components"] > 1 else "")


def format_local_size(shader: Shader) -> str:
    """Return text such as "256 x 1 x 1, declared": the workgroup size, and whether the source declares it or the engine chose it."""
    interface = shader.interface
    chosen = "chosen by the engine" if interface["is_chosen"] else "declared"
    return f"{' x '.join(map(str, interface['local_size']))}, {chosen}"


def _render_interface(shader: Shader) -> str:
    return render_table(("name", "access", "type", "location"), make_interface_rows(shader))


def _render_kernel(kernel: Kernel) -> str:
    body = render_properties(
        f"Kernel {kernel.name}",
        {"local size": format_local_size(kernel.shader), "built for": ", ".join(kernel.variants)},
    )
    source = f"<details><summary>source</summary>{render_preformatted(kernel.source)}</details>"
    return body + _render_interface(kernel.shader) + source


def _render_shader(shader: Shader) -> str:
    pairs = {
        "storage": shader.options.storage,
        "local size": format_local_size(shader),
        "SPIR-V": f"{len(shader.spirv):,} bytes",
        "needs": ", ".join(shader.interface["capabilities"]),
        "warnings": len(shader.warnings),
    }
    return render_properties(f"Shader {shader.name}", pairs) + _render_interface(shader)


def _get_desc_properties(desc: TensorDesc) -> dict[str, Any]:
    pairs: dict[str, Any] = {"dtype": desc.dtype, "shape": tuple(desc.shape), "bytes": f"{desc.bytes:,}"}
    if not desc.is_packed:
        pairs["strides"] = tuple(desc.strides)
    return pairs


def _render_tensor(tensor: Tensor) -> str:
    try:
        markup = render_properties("Tensor", {**_get_desc_properties(tensor.desc), "device": tensor.context.info.name})
        small = math.prod(tensor.shape) <= _MAX_VALUES
        return markup + (render_preformatted(str(tensor.numpy())) if small else "")
    except Error as error:  # the tensor is closed, or lost with its device
        return render_titled_text("Tensor", str(error))


def _get_device_properties(info: DeviceInfo) -> dict[str, Any]:
    return {
        "kind": info.kind,
        "driver": f"{info.driver} {info.driver_info}",
        "Vulkan": info.api_version,
        "memory": f"{info.memory_bytes / (1 << 30):.1f} GiB",
        "uuid": info.uuid,
    }


def render_devices(devices: Sequence[DeviceInfo], note: str = "") -> str:
    """Return a table of the devices, or a sentence that explains why there are none. note: which devices are hidden and why."""
    if not devices:
        return render_titled_text("No Vulkan device", note or "There is no Vulkan loader, or no driver for it.")
    rows = [(info.index, info.name, *_get_device_properties(info).values()) for info in devices]
    markup = render_table(("", "name", *_get_device_properties(devices[0])), rows)
    return markup + render_titled_text("Hidden devices", note) if note else markup


def _render_context(context: Context) -> str:
    try:
        return render_properties(
            f"Context on {context.info.name}", {**_get_device_properties(context.info), "chosen": context.choice}
        )
    except Error as error:
        return render_titled_text("Context", str(error))


def render_html(obj: Any) -> str:
    """Return HTML for a Kernel, Shader, Tensor, TensorDesc, Context or DeviceInfo."""
    if isinstance(obj, Kernel):
        return _render_kernel(obj)
    if isinstance(obj, Shader):
        return _render_shader(obj)
    if isinstance(obj, Tensor):
        return _render_tensor(obj)
    if isinstance(obj, TensorDesc):
        return render_properties("TensorDesc", _get_desc_properties(obj))
    if isinstance(obj, DeviceInfo):
        return render_properties(obj.name, _get_device_properties(obj))
    return _render_context(obj)


def render_compile_error(error: ShaderCompileError) -> str:
    """Return each message of a compile error with its highlighted source line below."""
    sections = []
    for message in error.messages:
        heading, *source_lines = message.split("\n")
        highlighted = html.escape(source_lines[0]) if source_lines else ""
        caret = html.escape("\n".join(source_lines[1:]))
        markup = (
            f'<span style="{_MONOSPACE_STYLE};{_HIGHLIGHT_STYLE}">{highlighted}</span>\n{caret}' if source_lines else ""
        )
        sections.append(f'<div><b>{html.escape(heading)}</b><pre style="{_MONOSPACE_STYLE}">{markup}</pre></div>')
    return "".join(sections)
