"""Old public names. They work for one version and raise a DeprecationWarning that names the successor."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from .errors import InputError

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
# Old name -> new name. Names in parentheses are keyword arguments of the function before them.
RENAMED = {
    "DriverQuirk.answer": "DriverQuirk.workaround",
    "DriverQuirk.shown": "DriverQuirk.detected",
    "Operator('pumice::BlockMatMul')": "Operator('pumice::BlockQuantMatMul')",
    "Operator('pumice::ProductSoftmax')": "Operator('pumice::MatMulSoftmax')",
    "Operator('pumice::SelectBoxes')": "Operator('pumice::NMS')",
    "Operator('pumice::SuppressBoxes')": "Operator('pumice::SoftNMS')",
    "Profile.table(most)": "Profile.table(max_rows)",
    "Program.observe_runs(most)": "Program.observe_runs(max_runs)",
    "ValidationReport.told": "ValidationReport.finding_lines",
    "ValidationRow.judged": "ValidationRow.deviation",
    "load(fuse=['block_products'])": "load(fuse=['block_quant'])",
    "load(fuse=['integer_products'])": "load(fuse=['qlinear'])",
    "text.ContextError.most": "text.ContextError.context_length",
    "text.Generator.apply_template(answer)": "text.Generator.apply_template(add_generation_prompt)",
    "text.Generator.device": "text.Generator.decoder",
    "text.Generator.encoded": "text.Generator.encode",
    "text.Generator.template_text(answer)": "text.Generator.template_text(add_generation_prompt)",
    "text.Generator(width)": "text.Generator(num_draft_tokens)",
    "text.Session.room": "text.Session.capacity",
}


def warn_renamed(old: str) -> None:
    """Warn that a name of RENAMED is deprecated, at the innermost line outside this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"pumice.{old} is now pumice.{RENAMED[old]}", DeprecationWarning, level)


def make_deprecated_attribute(old: str) -> Any:
    """Return a property for a deprecated attribute or method in RENAMED. It warns, then returns the attribute with the new name."""
    new_name = RENAMED[old].rpartition(".")[2]

    def get_renamed_value(instance: Any) -> Any:
        warn_renamed(old)
        return getattr(instance, new_name)

    return property(get_renamed_value)


def choose_renamed_argument(old: str, old_value: Any, new_value: Any, default: Any) -> Any:
    """Return the argument that the caller passed under its old or its new name. old_value is None if the old name was not used.

    Warn if the old name was used. Raise InputError if both names were used.
    """
    if old_value is None:
        return new_value
    warn_renamed(old)
    if new_value != default:
        raise InputError(f"{old}: expected no value in addition to {RENAMED[old]}, given {old_value!r:.100}")
    return old_value
