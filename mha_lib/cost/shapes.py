"""The sizes of a layer and of a whole model, and those of some published models."""

from dataclasses import dataclass

from mha_lib import validate


@dataclass(frozen=True)
class LayerShape:
    """The sizes of one multi-head attention layer.

    ``d_k`` and ``d_v`` are the widths of one head, d_model / num_heads unless given, and
    ``num_kv_heads`` is num_heads unless given. Raises TypeError or ValueError for sizes that do not
    fit together.

    >>> LayerShape(d_model=512, num_heads=8)
    LayerShape(d_model=512, num_heads=8, num_kv_heads=8, d_k=64, d_v=64)
    """

    d_model: int
    num_heads: int
    num_kv_heads: int | None = None
    d_k: int | None = None
    d_v: int | None = None

    def __post_init__(self):
        d_k, d_v = validate.head_widths(self.d_model, self.num_heads, self.d_k, self.d_v)
        num_kv_heads = self.num_heads if self.num_kv_heads is None else self.num_kv_heads
        validate.positive_integer("num_kv_heads", num_kv_heads)
        if self.num_heads % num_kv_heads:
            raise ValueError(
                f"num_kv_heads must divide num_heads = {self.num_heads}, got {num_kv_heads}"
            )
        for name, size in (("num_kv_heads", num_kv_heads), ("d_k", d_k), ("d_v", d_v)):
            object.__setattr__(self, name, size)  # the dataclass is frozen for everybody else


@dataclass(frozen=True)
class ModelShape:
    """A model's attention layers, all of one shape, and where the sizes are printed."""

    name: str
    layer: LayerShape
    num_layers: int
    source: str

    def __post_init__(self):
        validate.instance("layer", self.layer, LayerShape)
        validate.positive_integer("num_layers", self.num_layers)


_LLAMA_2 = "Touvron et al. 2023, Llama 2, "
_LLAMA_3 = "Grattafiori et al. 2024, The Llama 3 Herd of Models, table 3"

MODELS = {
    model.name: model
    for model in (
        ModelShape(
            "GPT-3 175B",
            LayerShape(12288, 96),
            96,
            "Brown et al. 2020, Language Models are Few-Shot Learners, table 2.1",
        ),
        ModelShape(
            "T5-11B",  # 24 layers in the encoder and 24 in the decoder; these are the decoder's
            LayerShape(1024, 128, d_k=128, d_v=128),
            24,
            "Raffel et al. 2020, Exploring the Limits of Transfer Learning, section 3.7",
        ),
        ModelShape("LLaMA-2 7B", LayerShape(4096, 32), 32, _LLAMA_2 + "and LLaMA, table 2"),
        ModelShape(
            "LLaMA-2 70B",
            LayerShape(8192, 64, num_kv_heads=8),
            80,
            _LLAMA_2 + "appendix A.2.1, and the released configuration",
        ),
        ModelShape("LLaMA-3 8B", LayerShape(4096, 32, num_kv_heads=8), 32, _LLAMA_3),
        ModelShape("LLaMA-3.1 405B", LayerShape(16384, 128, num_kv_heads=8), 126, _LLAMA_3),
    )
}


def layer_and_count(shape):
    """One layer's shape and how many of it there are, from a layer's or a model's shape.

    >>> layer_and_count(LayerShape(8, 2))[1], layer_and_count(MODELS["LLaMA-2 7B"])[1]
    (1, 32)
    """
    if isinstance(shape, ModelShape):
        return shape.layer, shape.num_layers
    validate.instance("shape", shape, LayerShape)
    return shape, 1
