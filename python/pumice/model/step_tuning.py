"""Model.tune(): benchmark the kernel variants of a model's matmuls and convolutions on its device."""

from __future__ import annotations

import math
import operator
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from .._pumice import DispatchTime, Error, OutOfMemoryError
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.printable_text import shorten_and_escape
from ..base.progress import Progress
from ..device.tuning_store import TuningRecord, read_record, write_record
from ..device.variant_arguments import PRECISIONS, describe_difference, get_default_tolerance
from .step_variants import StepVariants, choose_best_variants, make_empty_record

if TYPE_CHECKING:
    from .._pumice import Program
    from .model import Model


class StepVariant(NamedTuple):
    """A kernel variant. seconds: its best device time per step; None if it was rejected. rejected: the reason, or ""."""

    variant: str
    seconds: float | None
    rejected: str


class TunedStep(NamedTuple):
    """The tuning result of a kind of step.

    kind: its computation and size classes. nodes: names of the nodes with such steps. default_variant: the engine's own choice.
    """

    kind: str
    nodes: tuple[str, ...]
    default_variant: str
    chosen: str
    variants: tuple[StepVariant, ...]

    def seconds(self, variant: str) -> float | None:
        """Return the best time of a variant in seconds."""
        return next((step_variant.seconds for step_variant in self.variants if step_variant.variant == variant), None)

    @property
    def gain(self) -> float:
        """The speedup of the chosen variant over the engine's own choice; 1 if they are the same."""
        before, after = self.seconds(self.default_variant), self.seconds(self.chosen)
        return before / after if before and after else 1.0


class StepTuning:
    """The result of Model.tune().

    model: its name. steps: kinds of steps with several variants. measured: number of variants measured by this call; the others had stored
    results. before, after: device seconds of all dispatches with the engine's own choices and with the
    variants chosen now, both measured by this call.
    """

    def __init__(self, model: str, steps: list[TunedStep], measured: int, seconds: tuple[float, float]) -> None:
        self.model, self.steps, self.measured = model, tuple(steps), measured
        self.before, self.after = seconds

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible values."""
        steps = [
            {**tuned_step._asdict(), "variants": [v._asdict() for v in tuned_step.variants]}
            for tuned_step in self.steps
        ]
        return {
            "model": self.model,
            "measured": self.measured,
            "device_seconds": {"own": self.before, "chosen": self.after},
            "steps": steps,
        }

    def _make_rows(self) -> list[tuple[str, ...]]:
        """Return (kind of step, nodes, default variant, chosen variant, default time, chosen time, gain) for each kind."""

        def format_time(seconds: float | None) -> str:
            return "not known" if seconds is None else f"{seconds * 1e6:,.2f}"

        return [
            (
                tuned_step.kind,
                f"{tuned_step.nodes[0]} and {len(tuned_step.nodes) - 1} more"
                if len(tuned_step.nodes) > 1
                else tuned_step.nodes[0],
                tuned_step.default_variant,
                tuned_step.chosen if tuned_step.chosen != tuned_step.default_variant else "its own",
                format_time(tuned_step.seconds(tuned_step.default_variant)),
                format_time(tuned_step.seconds(tuned_step.chosen)),
                f"{tuned_step.gain:.2f}",
            )
            for tuned_step in self.steps
        ]

    @property
    def summary(self) -> str:
        """One line: how many steps use another variant, and the device time before and after."""
        changed = sum(tuned_step.chosen != tuned_step.default_variant for tuned_step in self.steps)
        count = sum(len(tuned_step.variants) for tuned_step in self.steps)
        return (
            f"{shorten_and_escape(self.model)}: {changed} of {len(self.steps)} kinds of steps take a measured variant; {self.measured} of "
            f"{count} variants measured now; {self.before * 1e6:,.1f} us on the device with the engine's own choices, "
            f"{self.after * 1e6:,.1f} us now"
        )

    def __repr__(self) -> str:
        head = ("step", "nodes", "default", "chosen", "default us", "chosen us", "gain")
        cells = [head, *(tuple(map(shorten_and_escape, row)) for row in self._make_rows())]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        )
        return "\n".join([self.summary, *(lines if self.steps else ())])

    def _repr_html_(self) -> str:
        from ..base.html import render_table, render_titled_text

        head = ("step", "nodes", "default", "chosen", "default us", "chosen us", "gain")
        return render_titled_text(self.summary, "") + render_table(head, self._make_rows(), highlighted=(0,))


class _StepKind:
    """A kind of step of the model being tuned. step_indices: its steps in the plan. stored: variant -> record."""

    def __init__(self, kind: str, default_variant: str, variants: list[str]) -> None:
        self.kind, self.default_variant, self.variants = kind, default_variant, variants
        self.step_indices: list[int] = []
        self.nodes: list[str] = []
        self.stored: dict[str, TuningRecord] = {}
        self.is_new = False  # whether this call of tune() has measured the engine's own choice

    def choose_best_variant(self) -> str:
        return choose_best_variants(list(self.stored.values())).get(self.kind, self.default_variant)


def tune_steps(model: Model, arrays: tuple[Array, ...], runs: int, flags: tuple[bool, bool]) -> StepTuning:
    """Measure variants without stored results and choose the best; see Model.tune. flags: (again, progress)."""
    if operator.index(runs) < 1:
        raise InputError(f"Model.tune: runs: expected a positive number, given {runs}")
    search = _StepTuningRun(model, arrays, runs)
    try:
        search.measure(*flags)
        return search.make_result()
    finally:
        search.close()


class _StepTuningRun:
    """One call of Model.tune. A trial is a program in which every kind of step uses its next variant, so all kinds are measured at once."""

    def __init__(self, model: Model, arrays: tuple[Array, ...], runs: int) -> None:
        self._model, self._arrays, self._runs = model, arrays, runs
        self._default_model = model.loaded_again(tuned=StepVariants.with_variant_listing({}))
        self._steps = self._default_model.program.plan(self._arrays)
        self._kinds = self._collect_kinds()
        node_counts = Counter(node for kind in self._kinds.values() for node in kind.nodes)
        self._shared_nodes = {
            node for node, count in node_counts.items() if count > 1
        }  # nodes that have steps of several kinds
        self._tensors: dict[
            str, Array
        ] = {}  # reference outputs of the tuned nodes, computed with the engine's own choices
        self._before = math.inf
        self.measured = 0

    def close(self) -> None:
        self._default_model.close()

    def _collect_kinds(self) -> dict[str, _StepKind]:
        kinds: dict[str, _StepKind] = {}
        for step_index, step in enumerate(self._steps):
            choice = step.get("choice")
            if choice is None or len(choice["variants"]) < 2:
                continue
            kind = kinds.setdefault(choice["kind"], _StepKind(choice["kind"], choice["own"], []))
            kind.variants += [variant_name for variant_name in choice["variants"] if variant_name not in kind.variants]
            kind.step_indices.append(step_index)
            if step["label"] not in kind.nodes:
                kind.nodes.append(step["label"])
        return kinds

    def measure(self, again: bool, progress: bool) -> None:
        empty_records = {
            (kind.kind, variant): make_empty_record(self._model.device, kind.kind, variant, kind.default_variant)
            for kind in self._kinds.values()
            for variant in kind.variants
        }
        unmeasured: dict[str, list[str]] = {}
        for (name, variant), record in empty_records.items():
            stored = None if again else read_record(record)
            if stored is not None:
                self._kinds[name].stored[variant] = stored
            elif variant != self._kinds[name].default_variant:
                unmeasured.setdefault(name, []).append(variant)
        self._measure_defaults(empty_records)
        num_rounds = max(map(len, unmeasured.values()), default=0)
        with Progress("variants", progress) as bar:
            for round_index in range(num_rounds):
                bar(round_index, num_rounds)
                trial_variants = {
                    name: variants[round_index] for name, variants in unmeasured.items() if round_index < len(variants)
                }
                self._run_trial(trial_variants, empty_records)
        if num_rounds:  # the first measurement may have run at lower device clocks
            self._measure_defaults(empty_records)

    def _measure_defaults(self, empty_records: dict[tuple[str, str], TuningRecord]) -> None:
        """Measure the engine's own choices. This is done before and after the trials, and the better times are used."""
        times = self._measure_steps(self._default_model.program, self._steps)
        self._before = min(self._before, sum(times))
        for kind in self._kinds.values():
            seconds, stored = (
                self._compute_seconds_per_step(kind, self._steps, times),
                kind.stored.get(kind.default_variant),
            )
            if stored is not None and (not kind.is_new or (stored.seconds or 0) <= seconds):
                continue
            self.measured += stored is None
            kind.is_new = True
            self._store_record(kind, empty_records[kind.kind, kind.default_variant], seconds=seconds)

    def _compute_seconds_per_step(self, kind: _StepKind, steps: list[dict[str, Any]], times: list[float]) -> float:
        """Return the seconds per step of a kind, including auxiliary steps (layout changes) if its nodes have no other kinds."""
        if self._shared_nodes.isdisjoint(kind.nodes):
            is_kind_step = [step["label"] in kind.nodes for step in steps]
        else:
            is_kind_step = [(step.get("choice") or {}).get("kind") == kind.kind for step in steps]
        return sum(seconds for seconds, is_counted in zip(times, is_kind_step, strict=True) if is_counted) / len(
            kind.step_indices
        )

    def _measure_steps(self, program: Program, steps: list[dict[str, Any]]) -> list[float]:
        """Return the best time of each step of the plan over all runs, in seconds."""
        runs_of_steps = [_get_step_seconds(program.profile(self._arrays), steps) for _ in range(self._runs)]
        return [min(times) for times in zip(*runs_of_steps, strict=True)]

    def _store_record(self, kind: _StepKind, record: TuningRecord, **changes: Any) -> None:
        if changes.get("seconds") == 0:  # below the resolution of the timestamps
            return
        new_record = record._replace(**changes)
        kind.stored[new_record.config["variant"]] = new_record
        write_record(new_record)

    def _run_trial(self, trial_variants: dict[str, str], empty_records: dict[tuple[str, str], TuningRecord]) -> None:
        """Measure a program with these variants (kind -> variant). Retry failed variants individually before rejecting them."""
        self.measured += len(trial_variants)
        for name, reason in self._measure_variants(trial_variants, empty_records).items():
            retry_failures = (
                {} if len(trial_variants) == 1 else self._measure_variants({name: trial_variants[name]}, empty_records)
            )
            if len(trial_variants) == 1 or retry_failures:
                self._store_record(
                    self._kinds[name],
                    empty_records[name, trial_variants[name]],
                    rejected=retry_failures.get(name, reason),
                )

    def _measure_variants(
        self, trial_variants: dict[str, str], empty_records: dict[tuple[str, str], TuningRecord]
    ) -> dict[str, str]:
        """Measure a program with these variants and store the times of correct ones. Return failed kind -> reason."""
        try:
            model = self._model.loaded_again(tuned=StepVariants.with_variant_listing(trial_variants))
        except OutOfMemoryError:  # not a reason to reject variants: there may be enough memory another time
            raise
        except Error as error:
            return dict.fromkeys(trial_variants, f"is not built: {str(error).splitlines()[0]}")
        with model:
            program = model.program
            try:
                steps = program.plan(self._arrays)
                mismatches = self._find_mismatches(program, [self._kinds[name] for name in trial_variants])
                times = self._measure_steps(program, steps)
            except OutOfMemoryError:
                raise
            except Error as error:
                return dict.fromkeys(trial_variants, f"does not run: {str(error).splitlines()[0]}")
        failed: dict[str, str] = {}
        for name, variant in trial_variants.items():
            kind = self._kinds[name]
            step_indices = [i for i, step in enumerate(steps) if (step.get("choice") or {}).get("kind") == name]
            if any(steps[i]["choice"]["spills"] for i in step_indices):
                failed[name] = "spills registers, according to the driver"
            elif any(steps[i]["choice"]["taken"] != variant for i in step_indices) or not step_indices:
                failed[name] = "cannot be used by every step of this kind"
            elif name in mismatches:
                failed[name] = mismatches[name]
            else:
                self._store_record(
                    kind, empty_records[name, variant], seconds=self._compute_seconds_per_step(kind, steps, times)
                )
        return failed

    def _find_mismatches(self, program: Program, kinds: list[_StepKind]) -> dict[str, str]:
        """Return kind -> description for kinds that change the results of the engine's own choices.

        A wrong result also affects later nodes, so correct kinds may be included.
        """
        nodes: dict[str, list[str]] = {}
        for kind in kinds:
            for node in kind.nodes:
                nodes.setdefault(node, []).append(kind.kind)
        if not self._tensors:
            all_nodes = {node for kind in self._kinds.values() for node in kind.nodes}
            self._tensors = self._observe_tensors(self._default_model.program, all_nodes)
        allowed = get_default_tolerance(PRECISIONS.get(self._model.precision, "float32"))
        mismatches_by_kind: dict[str, str] = {}
        actual_tensors = self._observe_tensors(program, set(nodes))
        for name, array in actual_tensors.items():
            node, _, tensor = name.partition("\0")
            exact = array.dtype.kind in "biu"
            expected = self._tensors.get(name)
            message = (
                "" if expected is None else describe_difference(tensor, array, expected, 0.0 if exact else allowed)
            )
            if message:  # any of the node's kinds may be the cause; each is then tried by itself
                mismatches_by_kind |= {
                    kind_name: f"is wrong: {message}"
                    for kind_name in nodes[node]
                    if kind_name not in mismatches_by_kind
                }
        return mismatches_by_kind

    def _observe_tensors(self, program: Program, nodes: set[str]) -> dict[str, Array]:
        """Return the tensors that these nodes store, keyed by "<node>\\0<tensor>"."""
        nodes_by_tensor = {
            observed_tensor["name"]: observed_tensor["node"]
            for observed_tensor in program.observe(self._arrays, set())["tensors"]
            if observed_tensor["node"] in nodes
        }
        observed_values = program.observe(self._arrays, set(nodes_by_tensor))["tensors"]
        return {
            f"{observed_tensor['node']}\0{observed_tensor['name']}": observed_tensor["array"]
            for observed_tensor in observed_values
            if observed_tensor["array"] is not None
        }

    def make_result(self) -> StepTuning:
        best = {kind.kind: kind.choose_best_variant() for kind in self._kinds.values()}
        with self._model.loaded_again(tuned=StepVariants(best)) as model:
            plan = model.program.plan(self._arrays)
            after = sum(self._measure_steps(model.program, plan)) if best else self._before
        steps = []
        for kind in self._kinds.values():
            stored = (kind.stored.get(variant) for variant in kind.variants)
            variants = [
                StepVariant(known_record.config["variant"], known_record.seconds, known_record.rejected)
                for known_record in stored
                if known_record is not None
            ]
            steps.append(
                TunedStep(kind.kind, tuple(kind.nodes), kind.default_variant, best[kind.kind], tuple(variants))
            )
        return StepTuning(self._model.name, steps, self.measured, (self._before, after))


def _get_step_seconds(dispatches: list[DispatchTime], steps: list[dict[str, Any]]) -> list[float]:
    """Return the seconds of each step of a plan, skipping copies to and from memory that is not host-visible."""
    dispatch_iterator = iter(dispatches)
    return [
        next(dispatch.seconds for dispatch in dispatch_iterator if dispatch.label == step["label"]) for step in steps
    ]
