"""Where the tensors that a checkpoint stores contradict the precision that is declared or built."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from .contradictions import Finding, Verification, below, fold
from .forms import PLAIN, VOCABULARY, Form, form
from .storage import by_module, signature
from .verify_listing import check_listing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .modules import Member
    from .resolution import Resolution, Resolved
    from .tensors import Tensors

    # Writes the names of a module's matrices, with or without a verb.
    _Shown = Callable[[list[str], bool], str]

# Formats that an engine may apply to plain weights while it loads them.
_WHILE_LOADING: Final = ("bitsandbytes", "torchao", "online")
_STACKED: Final = ("gate_up_proj", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3", "w13")
_DOWN: Final = ("down_proj", "w2", "fc2", "output_linear")


def verify(resolution: Resolution, tensors: Tensors) -> Verification:
    """Compare every module's precision with what the checkpoint stores for it.

    Parameters
    ----------
    resolution
        What an engine builds.
    tensors
        Names, element types and shapes from headers, or names alone from an index.

    Returns
    -------
    Verification
        Findings in model order, one per kind of module: neither layers nor experts are listed one by one.
    """
    return _Comparison(resolution, tensors).run()


class _Comparison:
    """One comparison; findings are collected by what they say, so that layers fold."""

    def __init__(self, resolution: Resolution, tensors: Tensors) -> None:
        self.resolution, self.tensors = resolution, tensors
        self.parts = by_module(tensors.tensors.values())
        self.block = _block(resolution)
        containers = {c for r in resolution.rows if r.module.kind == "experts" for c in r.module.checkpoint}
        self.below = below(self.parts, containers)
        self.seen: set[str] = set()
        self.accused: set[str] = set()
        self.unclear: Counter[str] = Counter()
        self.found: dict[tuple[str, ...], list[str]] = {}
        self.evidence: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.compared = 0

    def run(self) -> Verification:
        out = Verification(self.resolution, self.tensors)
        out.findings += [Finding("BL607", "files", text[0].upper() + text[1:]) for text in self.tensors.odd]
        absent: list[Resolved] = []
        for row in self.resolution.rows:
            matched = self.experts(row) if row.module.kind == "experts" else self.linear(row)
            self.compared += matched
            if not matched:
                absent.append(row)
        out.compared = self.compared
        if self.compared:
            self.not_stored(absent)
        else:
            out.findings.append(self.nothing_matched())
        at = {row.module.path: n for n, row in enumerate(self.resolution.rows)}
        ordered = sorted(self.found.items(), key=lambda item: at[item[1][0]])
        out.findings += [self.finding(key, paths) for key, paths in ordered]
        out.findings += check_listing(self.resolution, self.parts, self.block, self.accused)
        out.notes += self.notes()
        return out

    # --- collecting ---------------------------------------------------------

    def say(self, code: str, kind: str, row: Resolved, text: str, stored: str = "") -> None:
        """Remember one finding about a module; ``text`` must not name the layer."""
        answer = row.answer
        rule = f"{answer.rule} ({answer.rule_at})" if code in ("BL601", "BL603") else ""
        key = (code, kind, fold(row.module.path), answer.algorithm, stored, rule, text)
        self.found.setdefault(key, []).append(row.module.path)
        self.evidence.setdefault(key, answer.evidence)

    def finding(self, key: tuple[str, ...], paths: list[str]) -> Finding:
        code, kind, module, algorithm, stored, rule, text = key
        many = f" ({len(paths)} modules)" if len(paths) > 1 else ""
        by = f" is {algorithm} by `{rule.partition(' (')[0]}`" + (f" ({rule.rpartition(' (')[2]}" if rule else "")
        return Finding(
            code,
            kind,
            f"`{module}`{many}{by if rule else ''}{', but ' if rule else ': '}{text}",
            module,
            tuple(paths),
            algorithm,
            stored,
            self.evidence[key],
        )

    # --- comparing ----------------------------------------------------------

    def linear(self, row: Resolved) -> bool:
        """Compare a linear, embedding or head module with its shards; False when none is stored."""
        module = row.module
        members: list[tuple[str, Member | None]] = [(m.name, m) for m in module.members]
        members = members or [(name, None) for name in module.checkpoint]
        here = [(name, m) for name, m in members if name in self.parts]
        if not here:
            return False
        forms = []
        for name, member in here:
            self.seen.add(name)
            found = form(signature(self.parts[name]), member.into if member is not None else 0, self.block)
            forms.append((name, found))
            if member is not None:
                self.size(row, name, found, (member.out, member.into))
        lacking = [name for name, _ in members if name not in self.parts]
        if lacking:
            self.say(
                "BL604",
                "not_stored",
                row,
                f"{_tails(lacking, True)} not stored beside {_tails([n for n, _ in here], False)}",
            )
        self.precision(row, forms, _tails)
        return True

    def precision(self, row: Resolved, forms: list[tuple[str, Form]], shown: _Shown) -> None:
        """Compare a module's answer with the forms of its matrices."""
        answer = row.answer
        wrong: dict[str, list[str]] = {}
        faults: dict[str, list[str]] = {}
        for name, found in forms:
            for fault in found.faults:
                faults.setdefault(f"{fault} ({found.label})", []).append(name)
            if not found.known or answer.algorithm not in VOCABULARY:
                self.unclear[f"`{fold(row.module.path)}` is {answer.algorithm}, stored as {found.label}"] += 1
            elif answer.algorithm not in found.algorithms and not self.on_the_fly(answer.algorithm, found):
                wrong.setdefault(found.label, []).append(name)
        for label, names in wrong.items():
            self.accused.update(names)
            self.say("BL601", "index_disagrees", row, f"{shown(names, True)} stored as {label}", label)
        for fault, names in faults.items():
            if not set(names) & self.accused:
                self.say("BL603", "scale_missing", row, f"of {shown(names, False)} {fault}")
        if not wrong:
            self.activations(row, forms, shown)

    def on_the_fly(self, algorithm: str, found: Form) -> bool:
        """Whether the engine quantizes these plain weights itself."""
        return (
            algorithm not in PLAIN
            and not found.scaled
            and found.algorithms == PLAIN
            and any(w in self.resolution.format for w in _WHILE_LOADING)
        )

    def activations(self, row: Resolved, forms: list[tuple[str, Form]], shown: _Shown) -> None:
        """Report static activation scales that this engine and GPU use and nobody stored."""
        answer = row.answer
        # NVFP4 with 4-bit activations has a static scale beside the dynamic ones.
        static = answer.activations == "static" or answer.algorithm == "nvfp4"
        if not static or row.lane.lane.endswith("_wo") or answer.algorithm in PLAIN:
            return
        lacking = [name for name, found in forms if found.scaled and not found.input_scale]
        if lacking:
            self.say("BL603", "scale_missing", row, f"{shown(lacking, True)} stored without the scale of the input")

    def size(self, row: Resolved, name: str, found: Form, want: tuple[int, int]) -> None:
        """Compare a matrix with the size that the config gives it."""
        if found.shape is None:
            return
        rest = 1
        for n in found.shape[1:]:
            rest *= n
        # A convolution keeps its own axes; a matrix of one column may be stored as a vector.
        if (found.shape[0] if found.shape else 1, rest) != want:
            what = f"{name.rpartition('.')[2]} is stored as {list(found.shape)}, and the config says {list(want)}"
            self.say("BL605", "shape", row, what)

    def experts(self, row: Resolved) -> bool:
        """Compare a routed-experts module with its matrices, folded by projection and storage."""
        module = row.module
        owners = [o for c in module.checkpoint for o in self.leaves(c)]
        groups: dict[tuple[str, Any], list[str]] = {}
        numbers: set[str] = set()
        for owner in owners:
            self.seen.add(owner)
            roles = self.parts[owner]
            if set(roles) <= {"bias"}:
                continue
            path = owner.split(".")
            number = next((p for p in reversed(path) if p.isdigit()), "")
            numbers.add(number if _per_expert(owner, module.checkpoint) else "")
            groups.setdefault((path[-1], signature(roles)), []).append(owner)
        if not groups:
            return False
        sizes = module.attributes
        inter, hidden, count = sizes.get("inter", 0), sizes.get("hidden", 0), sizes.get("count", 0)
        forms = []
        for (projection, stored), names in groups.items():
            found = form(stored, inter if projection in _DOWN else hidden, self.block)
            forms += [(name, found) for name in names]
            self.expert_size(row, projection, found, (inter, hidden, count))
        numbers.discard("")
        if numbers and count and len(numbers) != count:
            self.say("BL604", "not_stored", row, f"{len(numbers)} experts are stored, and the config says {count}")
        self.precision(row, forms, _projections)
        return True

    def leaves(self, container: str) -> list[str]:
        """Modules stored below a container; stacked parameters may stand beside its name instead."""
        found = self.below.get(container, [])
        if found:
            return found
        parent = container.rpartition(".")[0]
        return [f"{parent}.{n}" for n in _STACKED if f"{parent}.{n}" in self.parts]

    def expert_size(self, row: Resolved, projection: str, found: Form, sizes: tuple[int, int, int]) -> None:
        """Compare one projection with the expert's sizes, either way round, alone, gated or stacked."""
        inter, hidden, count = sizes
        if found.shape is None or len(found.shape) < 2 or not inter or not hidden:
            return
        shape = found.shape
        stacked = len(shape) == 3
        pairs = {(n, hidden) for n in (inter, 2 * inter, count * inter, 2 * count * inter)}
        pairs |= {(hidden, n) for n, _ in pairs}
        if (shape[-2], shape[-1]) not in pairs or (stacked and count and shape[0] != count):
            what = f"{projection} is stored as {list(shape)}, and the config says {count} experts of {inter} x {hidden}"
            self.say("BL605", "shape", row, what)

    def not_stored(self, absent: list[Resolved]) -> None:
        """Report modules of the model itself; vision towers and draft blocks may be left out, a tied head is shared."""
        tied = _tied(self.resolution.checkpoint.config)
        for row in absent:
            module = row.module
            optional = not module.priced and module.stack not in ("", "layers")
            if optional or (tied and module.kind == "lm_head"):
                continue
            self.say("BL604", "not_stored", row, f"no tensor is stored for {_tails(list(module.checkpoint), False)}")

    def nothing_matched(self) -> Finding:
        expected = self.resolution.rows[0].module.checkpoint
        stored = next(iter(self.parts), "nothing")
        names = f"it expects names such as `{expected[0]}`, and `{stored}` is stored"
        return Finding("BL604", "not_stored", f"no module of family `{self.resolution.family.name}` is stored: {names}")

    def notes(self) -> list[str]:
        """What was not compared."""
        out = []
        if self.tensors.names_only:
            out.append(
                "only an index was at hand: types and shapes are unknown, and float8 without a scale looks plain"
            )
        out += [f"{text} ({n} matrices): not compared" for text, n in self.unclear.items()]
        loose: Counter[str] = Counter()
        for owner, roles in self.parts.items():
            if owner not in self.seen and form(signature(roles), 0, self.block).scaled:
                loose[fold(owner)] += 1
        family = self.resolution.family.name
        out += [
            f"`{name}` ({n} modules) is stored with scales, and no module of family `{family}` stands for it"
            for name, n in loose.items()
        ]
        return out


def _per_expert(owner: str, containers: tuple[str, ...]) -> bool:
    return any(owner.startswith(c + ".") and owner[len(c) + 1 :].split(".", 1)[0].isdigit() for c in containers)


def _tails(names: list[str], verb: bool) -> str:
    tails = [n.rpartition(".")[2] for n in names]
    text = ", ".join(dict.fromkeys(tails))
    return text + (" is" if len(names) == 1 else " are") if verb else text


def _projections(names: list[str], verb: bool) -> str:
    kinds = Counter(n.rpartition(".")[2] for n in names)
    # One expert among many is named by its number.
    last = {n.rpartition(".")[2]: n for n in names}
    text = ", ".join(f"{n} x {kind}" if n > 1 else _numbered(last[kind], kind) for kind, n in kinds.items())
    return text + (" is" if len(names) == 1 else " are") if verb else text


def _numbered(name: str, kind: str) -> str:
    number = name.rpartition(".")[0].rpartition(".")[2]
    return f"expert {number}'s {kind}" if number.isdigit() else kind


def _block(resolution: Resolution) -> tuple[int, int]:
    """Return the declared size of FP8 weight blocks, zeros when none is declared."""
    read = resolution.reading.block or {}
    found = read.get("weight_block_size")
    groups = read.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if not found and isinstance(weights, dict):
            found = weights.get("block_structure")
    if isinstance(found, list) and len(found) == 2 and all(isinstance(n, int) and 0 < n < 1 << 20 for n in found):
        return found[0], found[1]
    return 0, 0


def _tied(config: Mapping[str, Any]) -> bool:
    inner = config.get("text_config")
    said = [c["tie_word_embeddings"] for c in (config, inner) if isinstance(c, dict) and "tie_word_embeddings" in c]
    # A config that says nothing takes its class's default, which most classes set to true.
    return True in said or not said
