"""Names as people write them into quantization metadata: spelled right, wrong and as patterns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bitlane.resolver.family import compile_family
from bitlane.resolver.walk import modules
from bitlane.rules import library

if TYPE_CHECKING:
    import random

    from bitlane.resolver.modules import Module

_LEAVES = {
    "mixtral": ("w1", "w3", "w2"),
    "phimoe": ("w1", "w3", "w2"),
    "minimax_m2": ("w1", "w3", "w2"),
    "deepseek_v4": ("w1", "w3", "w2"),
}
_PREFIXES = (
    "model.",
    "backbone.",
    "language_model.",
    "language_model.model.",
    "model.language_model.",
    "transformer.",
    "model.model.",
    "",
)
_HEAD = re.compile(r"^(model\.language_model|language_model\.model|language_model|backbone|model)\.")


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


# Patterns and words that stand in real lists, some of which match nothing here.
_REGEXES = words(r"""
re:.*(mlp|shared_experts?|block_sparse_moe|mixer)\..* re:.*self_attn.* re:.*experts.* re:.*shared_expert.*
re:.*(attn|mixer)\..* re:.*(o_proj|out_proj)$ re:.*qkv_proj$ re:.*(q|k|v)_proj$ re:.*mlp.gate$ re:.*gate$
re:.*(gate|up|down)_proj$ re:.*gate_up_proj$ re:.*lm_head re:.*lm_head.* re:.*layers\.[0-1]\..* re:model.* re:.*
re:^(?!.*experts).*proj$ re:.*visual.* re:vision_tower.* re:.*layers.1.* re:.*experts\.1\..*
re:.*experts\.\d+\.(gate|up|down)_proj$ re:.*mlp\.experts\.[0-9]+\..* re:language_model.* re:.*in_proj_(qkv|z|a|b)$
re:.*linear_attn.* re:.*(kv_a_proj_with_mqa|q_a_proj)$ re:.*layers\.(0|2)\..*proj$
""")
_WORDS = words(r"""
visual vision_tower model.vision_tower mtp* model.router router gate mlp.gate proj mlp experts mixer head self_attn.
_attn.o model model.layers.1 layers.1 *v_proj* *gate* *.mlp.* *.self_attn.* * model.embed_tokens *layers.[13].*
shared_expert linear_attn self_attn conv1d *norm* k_proj v_proj up_proj
""")
_HEADS = words(r"""
lm_head lm_head lm_head lm_head lm_head* *lm_head* model.lm_head language_model.lm_head LM_HEAD lm_head.weight
*.lm_head
""")


@dataclass(frozen=True, slots=True)
class Names:
    """A model's module names, loader-side and checkpoint-side."""

    built: tuple[Module, ...]
    checkpoint: tuple[str, ...]
    shards: tuple[str, ...]
    experts: tuple[str, ...]
    leaves: tuple[str, ...]
    count: int

    @property
    def loader(self) -> tuple[str, ...]:
        """Loader-side names."""
        return tuple(m.path for m in self.built)


def names_of(config: dict[str, Any], version: str = "0.32.0", loader: str = "vllm") -> Names:
    """Names of a model that a family file describes, as a loader has them."""
    lib = library.find()
    family = compile_family(lib, config["architectures"][0], loader, version)
    built = tuple(modules(family, config))
    routed = [m for m in built if m.kind == "experts"]
    plain = [m for m in built if m.kind != "experts"]
    shards = tuple(m.path.replace(m.name, s) for m in built for s in family.packed.get(m.name, ()))
    nemotron = family.name == "nemotron_h"
    return Names(
        built,
        tuple(c for m in plain for c in m.checkpoint),
        shards,
        tuple(dict.fromkeys(c for m in routed for c in m.checkpoint)),
        ("up_proj", "down_proj") if nemotron else _LEAVES.get(family.name, ("gate_proj", "up_proj", "down_proj")),
        int(routed[0].attributes.get("count", 0)) if routed else 0,
    )


class Pen:
    """Draws names and patterns for one model."""

    def __init__(self, names: Names, rng: random.Random) -> None:
        self.names = names
        self.rng = rng
        # Half of the authors name all shards of what is fused, so that the engine does not stop at the first module.
        self.careful = rng.random() < 0.5
        self.gates = [c for c in names.checkpoint if re.search(r"(gate|router|shared_expert_gate)$", c)]
        self.text = [c for c in names.checkpoint if ".layers." in c and not re.search(r"vis(ion|ual)", c)] or list(
            names.checkpoint
        )

    # --- one name -----------------------------------------------------------

    def leaf(self) -> str:
        """One matrix of one routed expert."""
        n, r = self.names, self.rng
        return f"{r.choice(n.experts)}.{r.choice((0, 0, 1, n.count - 1))}.{r.choice(n.leaves)}"

    def name(self) -> str:
        """One module in one of its right spellings."""
        n, r = self.names, self.rng
        if n.experts and r.random() < 0.2:
            return r.choice((self.leaf(), r.choice(n.experts)))
        return r.choice(r.choice((n.checkpoint, self.text, n.loader, n.shards or n.loader)))

    def odd(self, name: str) -> str:
        """The same name as somebody misspells it."""
        r = self.rng
        parts = name.split(".")
        forms = (
            lambda: _HEAD.sub("", name),
            lambda: r.choice(_PREFIXES) + _HEAD.sub("", name),
            lambda: name + ".",
            lambda: name + r.choice((".weight", "_extra", ".norm", ".weight_scale")),
            name.upper,
            lambda: ".".join(parts[:-1]),
            lambda: ".".join(parts[: r.randrange(1, len(parts) + 1)]),
            lambda: ".".join(parts[r.randrange(len(parts)) :]),
            lambda: name[: r.randrange(1, len(name) + 1)],
            lambda: name[r.randrange(len(name)) :],
            lambda: name.replace("layers.", "layer.", 1),
            lambda: (
                name.replace(".mlp.", ".block_sparse_moe.")
                if ".mlp." in name
                else name.replace("block_sparse_moe", "mlp")
            ),
            lambda: " " + name,
            lambda: name.replace("self_attn", "attn"),
        )
        return r.choice(forms)()

    def wild(self, name: str) -> str:
        """A shell pattern made of the name."""
        r = self.rng
        parts = name.split(".")
        number = next((i for i, p in enumerate(parts) if p.isdigit()), None)
        forms = [
            lambda: name + "*",
            lambda: name + ".*",
            lambda: "*" + name,
            lambda: "*." + parts[-1],
            lambda: "*" + parts[-1],
            lambda: "*" + parts[-1] + "*",
            lambda: "*." + ".".join(parts[-2:]),
            lambda: "*." + parts[-2 if len(parts) > 1 else -1] + ".*",
            lambda: ".".join(parts[:-1]) + ".*",
            lambda: ".".join(parts[:-1]) + "*",
            lambda: name[:-2] + "*",
            lambda: name[:-1] + "?",
            lambda: name.replace(parts[-1], "?" + parts[-1][1:]) if parts[-1] else "?",
        ]
        if number is not None:
            layer = parts[number]
            for choice in ("?", "*", "[0-3]", "[!0]", "[13]", layer + "*", "[" + layer):
                forms.append(lambda c=choice: ".".join([*parts[:number], c, *parts[number + 1 :]]))
            forms += [
                lambda: ".".join(parts[: number + 1]),
                lambda: ".".join(parts[: number + 1]) + "*",
                lambda: ".".join(parts[: number + 1]) + ".*",
                lambda: "*layers." + layer + ".*",
            ]
        return r.choice(forms)()

    def regex(self) -> str:
        """An entry of the ``re:`` dialect."""
        r = self.rng
        name = self.name()
        last = name.rpartition(".")[2]
        forms = [
            f"re:.*{last}$",
            f"re:.*{last}",
            f"re:.*\\.{last}$",
            f"re:{re.escape(name)}",
            f"re:^{re.escape(name)}$",
            f"re:{last}",
            *_REGEXES,
        ]
        return r.choice(forms)

    # --- lists --------------------------------------------------------------

    def siblings(self, name: str) -> list[str]:
        """All shards that are fused with a shard, itself among them."""
        parent = name.rpartition(".")[0]
        return [s for s in self.names.shards if s.rpartition(".")[0] == parent]

    def exclusion(self, patterns: bool = True) -> list[str]:
        """One thought of an exclusion list: one or several entries."""
        r = self.rng
        draw = r.random()
        name = self.name()
        if draw < 0.2:
            return (self.siblings(name) if self.careful else []) or [name]
        if draw < 0.3:
            return [self.odd(name)]
        if draw < 0.52:
            return [self.wild(name)]
        if draw < 0.6:
            return [self.regex()]
        if draw < 0.68 and self.names.shards:
            found = self.siblings(r.choice(self.names.shards))
            return found if self.careful or r.random() < 0.6 else found[: r.randrange(1, len(found) + 1)]
        if draw < 0.76 and self.gates:
            return self.gates if r.random() < 0.6 else self.gates[: r.randrange(1, len(self.gates) + 1)]
        if draw < 0.84:
            names = (self.siblings(name) if self.careful else []) or [name]
            tails = tuple("." + n.rpartition(".")[2] for n in names)
            return [n for n in self.text if n.endswith(tails)]
        if draw < 0.88 and self.names.experts:
            home = r.choice(self.names.experts)
            return r.choice(
                (
                    [f"{home}.{i}.{x}" for i in range(self.names.count) for x in self.names.leaves],
                    [f"{home}.{r.randrange(self.names.count)}*"],
                    [self.leaf()],
                )
            )
        # An empty entry is in real lists, too.
        return [r.choice((*_WORDS, ""))]

    def exclusions(self, most: int = 5) -> list[str]:
        """A list of entries."""
        r = self.rng
        out = [e for _ in range(r.randrange(most)) for e in self.exclusion()]
        if r.random() < 0.65:
            out.append(r.choice(_HEADS))
        if r.random() < 0.5:
            r.shuffle(out)
        if r.random() < 0.1 and out:
            out.append(out[0])
        return out
