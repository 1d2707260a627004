"""Benchmark the kernel variants available to a model's matmuls and convolutions on its device."""

from __future__ import annotations

import math
import operator
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from .._pumice import DispatchTime, Error, OutOfMemoryError
from ..base.element_types import Array
from ..base.errors import InputError
from ..base.printable_text import plain
from ..base.progress import Progress
from ..device.tuning_arguments import PRECISIONS, difference, tolerance_of
from ..device.tuning_store import Record, read, write
from .step_variants import StepVariants, best_variants, blank

if TYPE_CHECKING:
    from .._pumice import Program
    from .model import Model


class StepVariant(NamedTuple):
    """A variant of a kind of step: its best device time per step in seconds, or None and why it was rejected."""

    variant: str
    seconds: float | None
    rejected: str


class TunedStep(NamedTuple):
    """A kind of step (its computation and size classes), the nodes with such steps, the engine's own choice, the
    variant chosen now, and all variants.
    """

    kind: str
    nodes: tuple[str, ...]
    own: str
    chosen: str
    variants: tuple[StepVariant, ...]

    def seconds(self, variant: str) -> float | None:
        """Return the best time of a variant in seconds."""
        return next((one.seconds for one in self.variants if one.variant == variant), None)

    @property
    def gain(self) -> float:
        """The speedup of the chosen variant over the engine's own choice; 1 if they are the same."""
        before, after = self.seconds(self.own), self.seconds(self.chosen)
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
        steps = [{**one._asdict(), "variants": [v._asdict() for v in one.variants]} for one in self.steps]
        return {
            "model": self.model,
            "measured": self.measured,
            "device_seconds": {"own": self.before, "chosen": self.after},
            "steps": steps,
        }

    def _rows(self) -> list[tuple[str, ...]]:
        """Return (kind of step, nodes, own choice, chosen, own time, chosen time, gain) per kind."""

        def shown(seconds: float | None) -> str:
            return "not known" if seconds is None else f"{seconds * 1e6:,.2f}"

        return [
            (
                one.kind,
                f"{one.nodes[0]} and {len(one.nodes) - 1} more" if len(one.nodes) > 1 else one.nodes[0],
                one.own,
                one.chosen if one.chosen != one.own else "its own",
                shown(one.seconds(one.own)),
                shown(one.seconds(one.chosen)),
                f"{one.gain:.2f}",
            )
            for one in self.steps
        ]

    @property
    def summary(self) -> str:
        """One line: how many steps use another variant, and the device time before and after."""
        changed = sum(one.chosen != one.own for one in self.steps)
        count = sum(len(one.variants) for one in self.steps)
        return (
            f"{plain(self.model)}: {changed} of {len(self.steps)} kinds of steps take a measured variant; {self.measured} of "
            f"{count} variants measured now; {self.before * 1e6:,.1f} us on the device with the engine's own choices, "
            f"{self.after * 1e6:,.1f} us now"
        )

    def __repr__(self) -> str:
        head = ("step", "nodes", "default", "chosen", "default us", "chosen us", "gain")
        cells = [head, *(tuple(map(plain, row)) for row in self._rows())]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
        )
        return "\n".join([self.summary, *(lines if self.steps else ())])

    def _repr_html_(self) -> str:
        from ..base.html import table, text_below

        head = ("step", "nodes", "default", "chosen", "default us", "chosen us", "gain")
        return text_below(self.summary, "") + table(head, self._rows(), marked=(0,))


class _Kind:
    """A kind of step in the model being tuned: plan indices of its steps, its variants, and the known records."""

    def __init__(self, kind: str, own: str, variants: list[str]) -> None:
        self.kind, self.own, self.variants = kind, own, variants
        self.places: list[int] = []
        self.nodes: list[str] = []
        self.known: dict[str, Record] = {}
        self.is_new = False  # whether this call has measured the engine's own choice

    def best(self) -> str:
        return best_variants(list(self.known.values())).get(self.kind, self.own)


def tuned_steps(model: Model, arrays: tuple[Array, ...], runs: int, shown: tuple[bool, bool]) -> StepTuning:
    """Measure variants without stored results and choose the best; see Model.tune. shown: (again, progress)."""
    if operator.index(runs) < 1:
        raise InputError(f"Model.tune: runs: expected a number from 1 on, given {runs}")
    search = _Search(model, arrays, runs)
    try:
        search.measure(*shown)
        return search.result()
    finally:
        search.close()


class _Search:
    """One call to Model.tune. All kinds of steps are tried together: a trial is a program in which each kind uses its next variant."""

    def __init__(self, model: Model, arrays: tuple[Array, ...], runs: int) -> None:
        self._model, self._arrays, self._runs = model, arrays, runs
        self._own = model.loaded_again(tuned=StepVariants.listing({}))
        self._steps = self._own.program.plan(self._arrays)
        self._kinds = self._listed()
        named = Counter(node for kind in self._kinds.values() for node in kind.nodes)
        self._shared = {node for node, count in named.items() if count > 1}  # nodes with steps of several kinds
        self._tensors: dict[str, Array] = {}  # outputs of the tuned nodes with the engine's own choices
        self._before = math.inf
        self.measured = 0

    def close(self) -> None:
        self._own.close()

    def _listed(self) -> dict[str, _Kind]:
        kinds: dict[str, _Kind] = {}
        for place, step in enumerate(self._steps):
            choice = step.get("choice")
            if choice is None or len(choice["variants"]) < 2:
                continue
            kind = kinds.setdefault(choice["kind"], _Kind(choice["kind"], choice["own"], []))
            kind.variants += [one for one in choice["variants"] if one not in kind.variants]
            kind.places.append(place)
            if step["label"] not in kind.nodes:
                kind.nodes.append(step["label"])
        return kinds

    def measure(self, again: bool, progress: bool) -> None:
        blanks = {
            (kind.kind, variant): blank(self._model.device, kind.kind, variant, kind.own)
            for kind in self._kinds.values()
            for variant in kind.variants
        }
        waiting: dict[str, list[str]] = {}
        for (name, variant), record in blanks.items():
            known = None if again else read(record)
            if known is not None:
                self._kinds[name].known[variant] = known
            elif variant != self._kinds[name].own:
                waiting.setdefault(name, []).append(variant)
        self._measure_own(blanks)
        rounds = max(map(len, waiting.values()), default=0)
        with Progress("variants", progress) as bar:
            for turn in range(rounds):
                bar(turn, rounds)
                tried = {name: variants[turn] for name, variants in waiting.items() if turn < len(variants)}
                self._trial(tried, blanks)
        if rounds:  # during the first measurement the device may not yet have raised its clocks
            self._measure_own(blanks)

    def _measure_own(self, blanks: dict[tuple[str, str], Record]) -> None:
        """Measure the engine's own choices before and after the trials of each call; the better times count."""
        times = self._times(self._own.program, self._steps)
        self._before = min(self._before, sum(times))
        for kind in self._kinds.values():
            seconds, known = self._seconds(kind, self._steps, times), kind.known.get(kind.own)
            if known is not None and (not kind.is_new or (known.seconds or 0) <= seconds):
                continue
            self.measured += known is None
            kind.is_new = True
            self._keep(kind, blanks[kind.kind, kind.own], seconds=seconds)

    def _seconds(self, kind: _Kind, steps: list[dict[str, Any]], times: list[float]) -> float:
        """Return the time per step of a kind, including auxiliary steps of its nodes, such as layout changes."""
        if self._shared.isdisjoint(kind.nodes):
            own = [step["label"] in kind.nodes for step in steps]
        else:
            own = [(step.get("choice") or {}).get("kind") == kind.kind for step in steps]
        return sum(seconds for seconds, is_own in zip(times, own, strict=True) if is_own) / len(kind.places)

    def _times(self, program: Program, steps: list[dict[str, Any]]) -> list[float]:
        """Return the best time of each step of the plan in seconds."""
        every = [_of_steps(program.profile(self._arrays), steps) for _ in range(self._runs)]
        return [min(times) for times in zip(*every, strict=True)]

    def _keep(self, kind: _Kind, record: Record, **found: Any) -> None:
        if found.get("seconds") == 0:  # below the clock's resolution, so the time is unknown
            return
        made = record._replace(**found)
        kind.known[made.config["variant"]] = made
        write(made)

    def _trial(self, tried: dict[str, str], blanks: dict[tuple[str, str], Record]) -> None:
        """Run a program with these variants; if it fails, try each variant by itself."""
        self.measured += len(tried)
        for name, reason in self._attempt(tried, blanks).items():
            alone = {} if len(tried) == 1 else self._attempt({name: tried[name]}, blanks)
            if len(tried) == 1 or alone:
                self._keep(self._kinds[name], blanks[name, tried[name]], rejected=alone.get(name, reason))

    def _attempt(self, tried: dict[str, str], blanks: dict[tuple[str, str], Record]) -> dict[str, str]:
        """Measure the variants and store the correct ones. Return the failed kinds, each with the reason."""
        try:
            model = self._model.loaded_again(tuned=StepVariants.listing(tried))
        except OutOfMemoryError:  # do not reject the variants: there may be enough memory another time
            raise
        except Error as error:
            return dict.fromkeys(tried, f"is not built: {str(error).splitlines()[0]}")
        with model:
            program = model.program
            try:
                steps = program.plan(self._arrays)
                wrong = self._wrong(program, [self._kinds[name] for name in tried])
                times = self._times(program, steps)
            except OutOfMemoryError:
                raise
            except Error as error:
                return dict.fromkeys(tried, f"does not run: {str(error).splitlines()[0]}")
        failed: dict[str, str] = {}
        for name, variant in tried.items():
            kind = self._kinds[name]
            places = [i for i, step in enumerate(steps) if (step.get("choice") or {}).get("kind") == name]
            if any(steps[i]["choice"]["spills"] for i in places):
                failed[name] = "spills, as the driver tells"
            elif any(steps[i]["choice"]["taken"] != variant for i in places) or not places:
                failed[name] = "cannot be taken by every step of this kind"
            elif name in wrong:
                failed[name] = wrong[name]
            else:
                self._keep(kind, blanks[name, variant], seconds=self._seconds(kind, steps, times))
        return failed

    def _wrong(self, program: Program, kinds: list[_Kind]) -> dict[str, str]:
        """Return the kinds whose results differ from the engine's own choices, with a description. Errors propagate downstream."""
        nodes: dict[str, list[str]] = {}
        for kind in kinds:
            for node in kind.nodes:
                nodes.setdefault(node, []).append(kind.kind)
        if not self._tensors:
            every = {node for kind in self._kinds.values() for node in kind.nodes}
            self._tensors = self._observed(self._own.program, every)
        allowed = tolerance_of(PRECISIONS.get(self._model.precision, "float32"))
        found: dict[str, str] = {}
        observed = self._observed(program, set(nodes))
        for name, array in observed.items():
            node, _, tensor = name.partition("\0")
            exact = array.dtype.kind in "biu"
            expected = self._tensors.get(name)
            said = "" if expected is None else difference(tensor, array, expected, 0.0 if exact else allowed)
            if said:  # each of the node's kinds is then tried by itself
                found |= {one: f"is wrong: {said}" for one in nodes[node] if one not in found}
        return found

    def _observed(self, program: Program, nodes: set[str]) -> dict[str, Array]:
        """Return the tensors that these nodes store, keyed by node and name."""
        of_nodes = {
            one["name"]: one["node"] for one in program.observe(self._arrays, set())["tensors"] if one["node"] in nodes
        }
        stored = program.observe(self._arrays, set(of_nodes))["tensors"]
        return {f"{one['node']}\0{one['name']}": one["array"] for one in stored if one["array"] is not None}

    def result(self) -> StepTuning:
        best = {kind.kind: kind.best() for kind in self._kinds.values()}
        with self._model.loaded_again(tuned=StepVariants(best)) as model:
            plan = model.program.plan(self._arrays)
            after = sum(self._times(model.program, plan)) if best else self._before
        steps = []
        for kind in self._kinds.values():
            known = (kind.known.get(variant) for variant in kind.variants)
            variants = [
                StepVariant(one.config["variant"], one.seconds, one.rejected) for one in known if one is not None
            ]
            steps.append(TunedStep(kind.kind, tuple(kind.nodes), kind.own, best[kind.kind], tuple(variants)))
        return StepTuning(self._model.name, steps, self.measured, (self._before, after))


def _of_steps(dispatches: list[DispatchTime], steps: list[dict[str, Any]]) -> list[float]:
    """Return the seconds per step of a plan, skipping dispatches that copy to or from memory that is not host-visible."""
    found = iter(dispatches)
    return [next(one.seconds for one in found if one.label == step["label"]) for step in steps]
