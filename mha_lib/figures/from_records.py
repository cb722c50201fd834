"""Pictures of chapters 5 and 7 with their numbers: formulas, and the records in the book."""

from mha_lib import cost, measure
from mha_lib.figures import complexity, decoding

NAMES = {
    "torch, written out": "plain form, PyTorch",
    "numpy, naive": "plain form, NumPy",
    "flash": "tiles, PyTorch's kernel",
    "numpy, tiles": "tiles, NumPy",
}


def shares():
    """Each stage's share of the work, over n."""
    shape, sizes = cost.LayerShape(512, 8), [2**k for k in range(6, 16)]
    flops = [cost.flops_by_stage(shape, n) for n in sizes]
    return complexity.shares(sizes, flops, cost.crossover(shape))


def heads():
    """Time over the number of heads, in times of one head."""
    record, curves = measure.load("cpu_heads"), {}
    for name, title in NAMES.items():
        sizes, seconds = measure.curve(record, "num_heads", implementation=name)
        curves[title] = sizes, [t / seconds[0] for t in seconds]
    return complexity.growth(curves, x="heads h (n = 1024, d = 512)", y="time, in times of h = 1")


def time():
    """Seconds over n."""
    return complexity.growth(_over_n("seconds"), x="tokens n (d = 512, h = 8)", y="seconds")


def memory():
    """Peak memory over n, with that of one set of weights dashed."""
    sizes, shape = [2**k for k in range(8, 14)], cost.LayerShape(512, 8)
    weights = [4 * cost.score_numbers(shape, n) for n in sizes]
    return complexity.growth(
        _over_n("peak_bytes"),
        x="tokens n (d = 512, h = 8)",
        y="peak extra bytes",
        guides=[("$4 h n^2$ bytes", sizes, weights)],
    )


def roofline():
    """Both forms under the roof of the record's machine, and of a GPU by its data sheet."""
    here, gpu = measure.recorded_device(measure.load("cpu_n")), cost.DEVICES["H100 SXM"]
    work, measured = cost.core_flops(cost.LayerShape(512, 8), 4096), {}
    plain, tiled = _intensities(8, 512, 4)
    for title, (sizes, seconds) in _over_n("seconds").items():
        at = plain if "plain" in title else tiled
        measured[title] = at, work / seconds[sizes.index(4096)]
    at = {f"plain, h = {h}": _intensities(h, 4096, 2)[0] for h in (128, 32, 4)}
    at["tiles, h = 32"] = _intensities(32, 4096, 2)[1]
    predicted = {name: (i, cost.attainable(gpu, "bfloat16", i)) for name, i in at.items()}
    return complexity.roofline(
        [
            complexity.Panel("CPU of the record", here, "float32", measured, measured=True),
            complexity.Panel("H100, d = 4096", gpu, "bfloat16", predicted, measured=False),
        ]
    )


def decode_roofline():
    """Chapter 7: what a step reads, under the roof of a GPU."""
    gpu, intensities = cost.DEVICES["H100 SXM"], {}
    intensities["weights, batch 16"] = cost.weight_intensity(16)
    intensities["weights at batch 1, and cache"] = cost.weight_intensity(1)
    for kv in (8, 1):
        shape = cost.LayerShape(8192, 64, num_kv_heads=kv)
        intensities[f"cache, {kv} shared by 64"] = cost.cache_intensity(shape)
    roof = {name: (i, cost.attainable(gpu, "bfloat16", i)) for name, i in intensities.items()}
    panel = complexity.Panel("decoding on an H100", gpu, "bfloat16", roof, measured=False)
    return complexity.roofline([panel])


def caches():
    """Chapter 7: how the caches of many sequences fill a device."""
    parameters = {"LLaMA-2 7B": 6.738e9, "LLaMA-3 8B": 8.030e9, "LLaMA-2 70B": 68.977e9}
    weights = {name: 2 * number for name, number in parameters.items()}
    cache = {name: cost.cache_bytes(cost.MODELS[name], 4096) for name in parameters}
    devices = {name: cost.DEVICES[f"{name} SXM"].memory for name in ("H100", "H200")}
    return decoding.memory(devices, list(parameters), 4096, cache, weights)


def decode_time():
    """Chapter 7: a step over the tokens in the cache, by key-value heads."""
    record = measure.load("cpu_decode")
    where = {"implementation": "torch, written out"}
    curves = {
        f"{kv} key-value heads": measure.curve(record, "n", num_kv_heads=kv, **where)
        for kv in (8, 2, 1)
    }
    return complexity.growth(curves, x="tokens in the cache", y="seconds a step")


def _over_n(y):
    record = measure.load("cpu_n")
    return {
        title: measure.curve(record, "n", y, implementation=name, causal=False)
        for name, title in NAMES.items()
    }


def _intensities(h, d, bytes_per_number, n=4096):
    shape, size = cost.LayerShape(d, h), {"bytes_per_number": bytes_per_number}
    moved = (cost.traffic_bytes(shape, n, tiled=tiled, **size) for tiled in (False, True))
    return [cost.core_flops(shape, n) / num_bytes for num_bytes in moved]
