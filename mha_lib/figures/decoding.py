"""Pictures of chapter 7: a cache in memory, and what a trained model's heads look at."""

import numpy as np

from mha_lib.figures.style import HEADS, INK, PALE, WEIGHTS, Picture, canvas

GIB = 2**30


def memory(devices, models, tokens, cache, weights):
    """How a device's memory fills: weights, and the caches of more and more sequences.

    ``devices`` maps a name to bytes; ``cache`` and ``weights`` map a model to bytes.
    """
    with canvas(7.8, 0.75 + 0.62 * len(models)) as (figure, axes):
        for row, model in enumerate(models):
            axes.barh(row, weights[model] / GIB, 0.6, color=HEADS[0])
            left = weights[model] / GIB
            for batch, color in zip((1, 8, 32), (HEADS[1], "#eab58d", "#f7e3d3"), strict=True):
                width = batch * cache[model] / GIB + weights[model] / GIB - left
                axes.barh(row, width, 0.6, left=left, color=color, edgecolor=INK, linewidth=0.4)
                left += width
        for name, size in devices.items():
            axes.axvline(size / GIB, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
            axes.text(size / GIB, -0.75, name, ha="center", size=9)
        axes.set_yticks(range(len(models)), models)
        axes.invert_yaxis()
        axes.set_xlabel(f"GiB, 16 bits a number, {tokens:,} tokens a sequence")
        for label, color in (
            ("weights", HEADS[0]),
            ("cache of 1 sequence", HEADS[1]),
            ("of 8", "#eab58d"),
            ("of 32", "#f7e3d3"),
        ):
            axes.barh(0, 0, color=color, edgecolor=INK, linewidth=0.4, label=label)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=9)
        names = ", ".join(models), ", ".join(devices)
        alt = f"Bars of memory: weights and caches of {names[0]}, against {names[1]}."
        return Picture(figure, alt)


def heads(maps, tokens, group):
    """Attention maps (num_heads, n, n) of one layer; heads of a group stand in one row."""
    rows = len(maps) // group
    with canvas(2.75 * group, 2.75 * rows, nrows=rows, ncols=group, squeeze=False) as (
        figure,
        axes,
    ):
        for i, (axis, weights) in enumerate(zip(axes.flat, maps, strict=True)):
            axis.imshow(weights, cmap=WEIGHTS, vmin=0, vmax=1)
            axis.set_title(f"query head {i + 1}", size=9.5, pad=4)
            axis.set(xticks=(), yticks=())
            if i % group == 0:
                axis.set_ylabel(f"key-value head {i // group + 1}", size=9.5)
        axes[-1, 0].set_xticks(range(len(tokens)), tokens, rotation=90, size=7.5)
        alt = (
            f"Attention of {len(maps)} query heads over the tokens {' '.join(tokens)}, a row for "
            "each key-value head: heads of one row differ although they share their keys."
        )
        return Picture(figure, alt, kind="png")


def sinks(shares):
    """How much of each head's attention goes to the first token: (layers, num_heads)."""
    with canvas(7.8, 3.2) as (figure, axes):
        layer = np.arange(1, len(shares) + 1)
        axes.bar(layer, shares.mean(axis=1), color="#c9d6e6", width=0.85, label="mean of the layer")
        for head in range(shares.shape[1]):
            label = "a head" if head == 0 else None
            axes.plot(layer, shares[:, head], "o", color=HEADS[0], markersize=3.5, label=label)
        axes.set(xlabel="layer", ylabel="share of the first token", ylim=(0, 1.02))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        alt = (
            "The first token's share of attention by layer, bars for the mean and dots for heads: "
            "small at the start, more than half in many later heads."
        )
        return Picture(figure, alt)


def step_times(contexts, cached, anew):
    """Seconds a token against the context, from a cache and without one."""
    with canvas(6.6, 3.5) as (figure, axes):
        axes.plot(contexts, anew, "s-", color=HEADS[1], label="everything anew")
        axes.plot(contexts, cached, "o-", color=HEADS[0], label="from the cache")
        axes.set_xscale("log", base=2)
        axes.set_xticks(contexts, [str(n) for n in contexts])
        axes.minorticks_off()
        axes.grid(axis="y", color="#e6e8ea", linewidth=0.8)
        axes.tick_params(colors=INK)
        axes.spines["left"].set_color(PALE)
        axes.set(xlabel="tokens in the context", ylabel="seconds a token")
        axes.legend(loc="upper left")
        alt = "Seconds a token over the context: nearly flat from the cache, rising without one."
        return Picture(figure, alt)
