"""Render the engine's objects as HTML for notebooks. Imported on first display."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from .._pumice import Context, DeviceInfo, Error, Kernel, Shader, ShaderCompileError, Tensor, TensorDesc

_MAX_ROWS = 200  # maximum rows shown per table; the object itself has all of them
_MAX_VALUES = 64  # maximum elements of a tensor that is downloaded for display
# Styles are inline, because notebook pages override the alignment and fonts of table cells.
_HIGHLIGHT_STYLE = "background:rgba(220,60,60,.2)"
_LEFT_STYLE = "text-align:left"
_MONOSPACE_STYLE = "font-family:monospace;white-space:pre;text-align:left"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], marked: Collection[int] = ()) -> str:
    """Return an HTML table with escaped cells.

    marked: indices of highlighted rows, which are shown even if the table is truncated before them.
    """
    all_rows = list(rows)
    visible_rows = [i for i in range(len(all_rows)) if i < _MAX_ROWS or i in marked]
    lines = [_row("td", all_rows[i], _HIGHLIGHT_STYLE if i in marked else "") for i in visible_rows]
    if len(visible_rows) < len(all_rows):
        more = f"... and {len(all_rows) - len(visible_rows)} more"
        lines.append(f'<tr><td colspan="{len(head)}" style="{_LEFT_STYLE}">{more}</td></tr>')
    return f"<table><thead>{_row('th', head)}</thead><tbody>{''.join(lines)}</tbody></table>"


def _cell(tag: str, content: Any, style: str = "") -> str:
    return f'<{tag} style="{_LEFT_STYLE}{style and ";" + style}">{html.escape(str(content))}</{tag}>'


def _row(tag: str, cells: Sequence[Any], style: str = "") -> str:
    return f"<tr>{''.join(_cell(tag, cell, style) for cell in cells)}</tr>"


def facts_table(title: str, pairs: dict[str, Any]) -> str:
    """Return a title above a table of names and values."""
    lines = "".join(f"<tr>{_cell('th', key)}{_cell('td', value)}</tr>" for key, value in pairs.items())
    return f"<b>{html.escape(title)}</b>" + (f"<table>{lines}</table>" if pairs else "")


def preformatted(text: str) -> str:
    """Return preformatted monospace text."""
    return f'<pre style="{_MONOSPACE_STYLE}">{html.escape(text)}</pre>'


def titled_text(title: str, text: str) -> str:
    """Return monospace text below a title."""
    return f"<b>{html.escape(title)}</b>{preformatted(text)}"


def interface_rows(shader: Shader) -> list[tuple[str, str, str, str]]:
    """Return (name, access, type, binding or offset) of every buffer, image, push constant and specialization constant in a shader."""
    interface = shader.interface
    rows = []
    for item in interface["bindings"]:
        names = ", ".join([item["name"], *item["aliases"]])
        access = "uniform" if item["uniform"] else item["access"].replace("_", " and ")
        rows.append((names, access, f"{_type_text(item)}[]", f"binding {item['binding']}"))
    for item in interface["images"]:
        access = "sampled" if item["sampled"] else "storage"
        rows.append((item["name"], access, f"image, {item['dimensions']}-D", f"binding {item['binding']}"))
    for item in interface["push_constants"]:
        if not item["name"].split(".")[-1].startswith("pumice_"):
            count = f"[{item['count']}]" if item["count"] > 1 else ""
            rows.append((item["name"], "push constant", _type_text(item) + count, f"byte {item['offset']}"))
    for item in interface["spec_constants"]:
        if item["id"] not in interface["local_size_ids"]:
            rows.append((item["name"], "specialization constant", item["type"], f"id {item['id']}"))
    return rows


def _type_text(entry: dict[str, Any]) -> str:
    if entry["type"] == "other":
        return "structure"
    return str(entry["type"]) + (f" x {entry['components']}" if entry["components"] > 1 else "")


def local_size_text(shader: Shader) -> str:
    """Return the workgroup size, and whether the source declares it or the engine chose it."""
    interface = shader.interface
    chosen = "chosen by the engine" if interface["is_chosen"] else "declared"
    return f"{' x '.join(map(str, interface['local_size']))}, {chosen}"


def _shader_body(shader: Shader) -> str:
    return table(("name", "access", "type", "location"), interface_rows(shader))


def _kernel_html(kernel: Kernel) -> str:
    body = facts_table(
        f"Kernel {kernel.name}",
        {"local size": local_size_text(kernel.shader), "built for": ", ".join(kernel.variants)},
    )
    source = f"<details><summary>source</summary>{preformatted(kernel.source)}</details>"
    return body + _shader_body(kernel.shader) + source


def _shader_html(shader: Shader) -> str:
    pairs = {
        "storage": shader.options.storage,
        "local size": local_size_text(shader),
        "SPIR-V": f"{len(shader.spirv):,} bytes",
        "needs": ", ".join(shader.interface["capabilities"]),
        "warnings": len(shader.warnings),
    }
    return facts_table(f"Shader {shader.name}", pairs) + _shader_body(shader)


def _desc_facts(desc: TensorDesc) -> dict[str, Any]:
    pairs: dict[str, Any] = {"dtype": desc.dtype, "shape": tuple(desc.shape), "bytes": f"{desc.bytes:,}"}
    if not desc.is_packed:
        pairs["strides"] = tuple(desc.strides)
    return pairs


def _tensor_html(tensor: Tensor) -> str:
    try:
        markup = facts_table("Tensor", {**_desc_facts(tensor.desc), "device": tensor.context.info.name})
        small = math.prod(tensor.shape) <= _MAX_VALUES
        return markup + (preformatted(str(tensor.numpy())) if small else "")
    except Error as error:  # the tensor is closed, or lost with its device
        return titled_text("Tensor", str(error))


def _device_facts(info: DeviceInfo) -> dict[str, Any]:
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
        return titled_text("No Vulkan device", note or "There is no Vulkan loader, or no driver for it.")
    rows = [(info.index, info.name, *_device_facts(info).values()) for info in devices]
    markup = table(("", "name", *_device_facts(devices[0])), rows)
    return markup + titled_text("Hidden devices", note) if note else markup


def _context_html(context: Context) -> str:
    try:
        return facts_table(f"Context on {context.info.name}", {**_device_facts(context.info), "chosen": context.choice})
    except Error as error:
        return titled_text("Context", str(error))


def render_html(obj: Any) -> str:
    """Return HTML for a Kernel, Shader, Tensor, TensorDesc, Context or DeviceInfo."""
    if isinstance(obj, Kernel):
        return _kernel_html(obj)
    if isinstance(obj, Shader):
        return _shader_html(obj)
    if isinstance(obj, Tensor):
        return _tensor_html(obj)
    if isinstance(obj, TensorDesc):
        return facts_table("TensorDesc", _desc_facts(obj))
    if isinstance(obj, DeviceInfo):
        return facts_table(obj.name, _device_facts(obj))
    return _context_html(obj)


def compile_error_html(error: ShaderCompileError) -> str:
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
