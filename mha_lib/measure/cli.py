"""python -m mha_lib measure compare | compare decode | --sweep KIND."""

import os
import sys
from pathlib import Path


def add(commands):
    """Add the command to those of the book."""
    measure = commands.add_parser("measure", help="time implementations against each other")
    what = measure.add_mutually_exclusive_group(required=True)
    what.add_argument("compare", choices=["compare"], nargs="?", help="side by side, as ratios")
    subjects = {"nargs": "?", "choices": ["layers", "decode"], "default": "layers"}
    measure.add_argument(
        "subject", **subjects, help="compare layers, or decoding by stacks of them"
    )
    kinds = ["n", "heads", "d_model", "decode"]
    what.add_argument("--sweep", choices=kinds, help="time and memory over sizes, kept in a file")
    measure.add_argument("--sizes", type=int, nargs="+", metavar="N", help="other sizes")
    measure.add_argument("--rounds", type=int, help="turns of each contender (9, in a sweep 7)")
    measure.add_argument("--device", choices=["cpu", "cuda"], help="of a sweep (CUDA if it is had)")
    measure.add_argument("--out", type=Path, metavar="FILE", help="where a sweep's record goes")
    measure.set_defaults(run=_measure)


def _measure(options):
    try:
        return _sweep(options) if options.sweep else _compare(options)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2


def _given(option, default):
    return default if option is None else option


def _compare(options):
    if options.subject == "decode":
        return _compare_decode(options)
    from mha_lib import contenders, measure

    for n in options.sizes or [128, 512, 2048]:
        for causal in (False, True):
            for kind in (contenders.forward, contenders.forward_backward):
                label = f"{kind.__name__.replace('_', ' + ')}, n = {n}{', causal' * causal}"
                print(label)
                timings = measure.compare(kind(n, causal), _given(options.rounds, 9), label)
                print(measure.table(timings))
    return 0


def _compare_decode(options):
    from mha_lib import decoding, measure

    for context in options.sizes or [1024]:
        label = f"decode, context {context}"
        print(label)
        timings = measure.compare(decoding.decode(context), _given(options.rounds, 9), label)
        print(measure.table(timings))
    return 0


def _sweep(options):
    from mha_lib import measure

    _check_out(options.out)
    device = options.device or measure.device()
    rounds, label = _given(options.rounds, 7), f"{options.sweep} on {device}"
    record = measure.sweep(
        options.sweep, device, sizes=options.sizes, rounds=rounds, memory=True, label=label
    )
    measure.save(record | {"command": _command(options, device, rounds)}, options.out)
    failed = sum(point["error"] is not None for point in record["points"])
    print(f"wrote {options.out}: {len(record['points'])} points, {failed} without a time")
    return 0


def _check_out(out):
    """A fault now, not after minutes of work."""
    if out is None:
        raise ValueError("--sweep needs --out FILE, where the record goes")
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir() or not os.access(out.parent, os.W_OK):
        raise ValueError(f"--out must be a file that can be written, got {out}")


def _command(options, device, rounds):
    """What was typed, with every choice spelt out and the folder left out."""
    sizes = f" --sizes {' '.join(map(str, options.sizes))}" if options.sizes else ""
    return (
        f"python -m mha_lib measure --sweep {options.sweep} --device {device}{sizes}"
        f" --rounds {rounds} --out {options.out.name}"
    )
