"""What goes wrong on paper, as a table: a sentence, and the step that is done otherwise."""

import numpy as np

from mha_lib.worked_example.work import Work


def slip(sentence, **steps):
    """A way of working with some steps replaced; ``sentence`` tells the reader what was done."""
    return type("Slip", (Work,), {"sentence": sentence, **steps})


def slips(example, token, head):
    """Every slip that can be made with this token in this head, both counted from 0.

    The most likely come first.
    """
    found = list(COMMON)
    if example.causal:
        found += MASKED
    found += [_query_of(example, i) for i in range(len(example.tokens)) if i != token]
    found += _features_left_out(example, token)
    for other in range(example.num_heads):
        if other != head:
            found += _of_other_head(other)
    return [*found, *UNLIKELY]


def in_one_head(found, num_heads):
    """Each of these slips made in one head alone, for the steps that need all heads."""
    return [_only_in(h, made) for made in found for h in range(num_heads)]


def _only_in(head, made):
    def heads(work):
        right = Work(work.numbers, work.token).heads()
        right[head] = made(work.numbers, work.token, head).head()
        return right

    return slip(f"In head {head + 1} alone: {made.sentence}", heads=heads)


def _query_of(example, other):
    return slip(
        f"You used the query of {example.tokens[other]!r}: take the row of Q that belongs to your "
        "own token.",
        query=lambda work: work.queries()[other],
    )


def _features_left_out(example, token):
    """Slips that leave out one of a token's several features, in its query or in the keys."""
    found = [_without([token], feature, queries="w_q") for feature in _several(example.x[token])]
    where = {}
    for i, row in enumerate(example.key_rows):
        for feature in _several(row):
            where.setdefault(feature, []).append(i)
    for feature, rows in where.items():
        for some in [[row] for row in rows] + [rows] * (len(rows) > 1):
            found += [_without(some, feature, keys="w_k"), _without(some, feature, values="w_v")]
    return found


def _several(row):
    """The features that are not 0, if there is more than one."""
    there = [feature for feature, number in enumerate(row) if number]
    return there if len(there) > 1 else []


def _without(rows, feature, **matrix):
    """Project with 0 for one feature in these rows."""
    ((step, name),) = matrix.items()

    def left_out(work):
        x = np.array(work.numbers.x if step == "queries" else work.numbers.memory)
        x[rows, feature] = 0
        return work.project(x, getattr(work.numbers.w, name))

    return slip(
        f"You left out feature {feature + 1}: every feature that is not 0 adds its row of "
        f"W^{name[-1].upper()}.",
        **{step: left_out},
    )


def _of_other_head(other):
    """Slips that take head ``other``'s columns, of one matrix or of all."""
    there = f"head {other + 1}"

    def project(work, x, w):
        return Work.project(Work(work.numbers, work.token, other), x, w)

    def taken(step):
        return lambda work: getattr(Work(work.numbers, work.token, other), step)()

    return [
        slip(f"You worked in {there}: each head has columns of its own.", project=project),
        slip(f"You took the query from {there}.", query=taken("query")),
        slip(f"You took the keys from {there}.", keys=taken("keys")),
        slip(f"You took the values from {there}.", values=taken("values")),
    ]


def _transposed(name):
    """Project with one matrix transposed, where it is square."""

    def step(work):
        w = getattr(work.numbers.w, f"w_{name[0]}")
        x = work.numbers.x if name == "queries" else work.numbers.memory
        return work.project(x, w.T if w.shape[0] == w.shape[1] else w)

    return slip(
        f"You multiplied by the transpose of W^{name[0].upper()}: take its columns, not its rows.",
        **{name: step},
    )


def _printed(work):
    """The exponential that the article prints with a wrong last digit."""
    right = Work.exponentials(work)
    return np.where(np.isclose(right, np.exp(np.sqrt(2))), 4.114, right)


def _down_the_column(work):
    """Each exponential over the sum of its own key's, over all queries."""
    tokens = range(len(work.numbers.x))
    table = [type(work)(work.numbers, i, work.head_index).exponentials() for i in tokens]
    total = np.sum(table, axis=0)
    return table[work.token] / np.where(total == 0, 1, total)


def _less_the_maximum(work):
    return np.exp(work.scaled() - work.scaled().max())


def _masked_late(work):
    everything = slip("", allowed=lambda other: np.ones(len(other.numbers.memory), bool))
    weights = everything(work.numbers, work.token, work.head_index).weights()
    return np.where(work.allowed(), weights, 0)


def _nothing_for_zero(work):
    scaled = work.scaled()
    return np.where(scaled == 0, 0, np.exp(scaled))


def _all_equal(work):
    return work.allowed() / max(1, work.allowed().sum())


def _mirrored(work):
    """Every token from this one on."""
    shift = len(work.numbers.memory) - len(work.numbers.x)
    return np.arange(len(work.numbers.memory)) >= work.token + shift


def _transposed_output(work):
    w_o = work.numbers.w.w_o
    return work.concat() @ (w_o.T if w_o.shape[0] == w_o.shape[1] else w_o)


# Each step from numbers that were rounded to three decimals, as the check takes them.
ROUNDED_STEPS = {
    "exponentials": lambda work: np.exp(work.scaled().round(3)),
    "sum": lambda work: work.exponentials().round(3).sum(),
    "weights": lambda work: work.exponentials().round(3) / (work.sum() or 1),
    "head": lambda work: work.weights().round(3) @ work.values(),
    "output": lambda work: work.concat().round(3) @ work.numbers.w.w_o,
}


def _went_on(*steps):
    return slip(
        "You went on with numbers rounded to three decimals: keep four until the end.",
        **{step: ROUNDED_STEPS[step] for step in steps},
    )


SIGN_LOST = "You lost a minus sign: look at the signs of query, key and score again."

COMMON = (
    _went_on("exponentials"),
    _went_on("sum", "weights"),
    _went_on("head"),
    _went_on("output"),
    _went_on(*ROUNDED_STEPS),
    slip(
        "You left out the scale: divide each score by the square root of d_k before exp.",
        divisor=lambda work: 1.0,
    ),
    slip(
        "You divided by d_k itself: the scale is its square root.",
        divisor=lambda work: work.numbers.d_k,
    ),
    slip(
        "You divided by the square root of d_model: the scale is the square root of d_k, the width "
        "of one head.",
        divisor=lambda work: np.sqrt(work.numbers.x.shape[1]),
    ),
    slip(
        "You multiplied by the square root of d_k: the scale divides.",
        divisor=lambda work: work.numbers.d_k**-0.5,
    ),
    slip(
        "You have already divided by the square root of d_k: that comes after the scores, and "
        "once.",
        scores=lambda work: Work.scores(work) / work.divisor(),
    ),
    slip(
        SIGN_LOST,
        query=lambda work: np.abs(Work.query(work)),
    ),
    slip(
        SIGN_LOST,
        scores=lambda work: np.where(work.allowed(), np.abs(Work.scores(work)), -np.inf),
    ),
    slip(
        "You took e^0 for 0: it is 1, so that a score of 0 has an exponential too.",
        exponentials=_nothing_for_zero,
    ),
    slip(
        "You forgot to exponentiate: take exp of each scaled score before you add and divide.",
        exponentials=Work.scaled,
    ),
    slip(
        "You rounded too early: the scaled scores to one decimal. Keep at least four until the "
        "end.",
        exponentials=lambda work: np.exp(work.scaled().round(1)),
    ),
    slip(
        "You rounded too early: the scaled scores to two decimals. Keep at least four until the "
        "end.",
        exponentials=lambda work: np.exp(work.scaled().round(2)),
    ),
    slip(
        "This is what the article that this book grew out of prints, and its last digit is off: "
        "exp of the square root of 2 is 4.1133, which rounds to 4.113 and not to 4.114; with it "
        "the sum is 5.606 and not 5.607.",
        exponentials=_printed,
    ),
    slip(
        "You subtracted the largest scaled score first. That changes no weight and keeps exp "
        "small, as software does; on paper, leave it out here.",
        exponentials=_less_the_maximum,
    ),
    slip(
        "You forgot to divide by the sum: these are the exponentials.",
        weights=Work.exponentials,
    ),
    slip(
        "Your softmax ran down the column: divide by the sum over the keys of this one query, "
        "along the row.",
        weights=_down_the_column,
    ),
    slip(
        "You rounded too early: the weights to one decimal. Keep at least four until the end.",
        head=lambda work: work.weights().round(1) @ work.values(),
    ),
    slip(
        "You rounded too early: the weights to two decimals. Keep at least four until the end.",
        head=lambda work: work.weights().round(2) @ work.values(),
    ),
    slip(
        "All your weights are equal: they follow the scores, each exponential over the sum.",
        weights=_all_equal,
    ),
    slip(
        "You took the keys for the values: a value is x times W^V, and the weights mix values.",
        values=Work.keys,
    ),
    slip(
        "You took W^Q for the keys: a key is x times W^K.",
        keys=lambda work: work.project(work.numbers.memory, work.numbers.w.w_q),
    ),
    slip(
        "You took W^K for the queries: a query is x times W^Q.",
        queries=lambda work: work.project(work.numbers.x, work.numbers.w.w_k),
    ),
    slip("You left out W^O: this is the concatenation.", output=Work.concat),
    slip(
        "You multiplied by the transpose of W^O: take its columns, not its rows.",
        output=_transposed_output,
    ),
    slip(
        "Your heads stand in the wrong order: head 1 comes first.",
        concat=lambda work: work.heads()[::-1].ravel(),
    ),
    slip(
        "You wove the heads together: first all of head 1, then all of head 2.",
        concat=lambda work: work.heads().T.ravel(),
    ),
)

MASKED = (
    slip(
        "You forgot the mask: a token may not attend to those after it.",
        allowed=lambda work: np.ones(len(work.numbers.memory), bool),
    ),
    slip(
        "You set the forbidden weights to 0 after the softmax: mask the scores, so that the rest "
        "still sums to 1.",
        weights=_masked_late,
    ),
    slip(
        "Your mask is upside down: a token attends to itself and to those before it.",
        allowed=_mirrored,
    ),
)

UNLIKELY = tuple(map(_transposed, ("queries", "keys", "values")))
