"""Exercises of the chapter on masks: build them, apply them, convert and pack them."""

import numpy as np

from mha_lib import scratch
from mha_lib.exercises.draw import draw, unequal
from mha_lib.exercises.faulty import bare_softmax_over, divided_again, filled, softmax_over
from mha_lib.exercises.judge import Exercise
from mha_lib.exercises.single_head import softmax
from mha_lib.exercises.splitting import INVERTED

POLARITY = (
    "Your mask is right the other way round: True means 'may attend', and you put True at what is "
    "hidden."
)
NUMBERS = (
    "Your ones and zeros stand in the right places, but a mask is boolean. Leave the comparison's "
    "True and False as they are, or write .astype(bool)."
)
ADDITIVE = (
    "You built the additive form, 0 where a query may look and -inf where not. Here a mask is "
    "boolean: True where it may look, False where not."
)


def _additive(mask):
    """What is added to the scores in place of the mask."""
    return np.where(mask, 0.0, -np.inf)


def causal_mask(n_q, n_kv):
    """True where a key does not stand behind its query; the queries are the last n_q positions."""
    position = np.arange(n_q) + n_kv - n_q  # where the queries stand among the keys
    return np.arange(n_kv) <= position[:, None]  # (n_q, n_kv)


def _causal_mask_cases():
    return [(2, 2), (1, 3), (2, 3), (3, 5), (4, 4), (4, 2)]


def _causal_mask_random(rng):
    return tuple(unequal(rng, 2, lowest=1))


def _shifted(shift):
    """A causal mask that shows ``shift`` keys more."""
    return lambda n_q, n_kv: np.tril(np.ones((n_q, n_kv), bool), n_kv - n_q + shift)


def _from_the_top_left(shift=0):
    """A causal mask that starts at key 0, whatever n_kv, and shows ``shift`` keys more."""
    return lambda n_q, n_kv: np.tril(np.ones((n_q, n_kv), bool), shift)


def _offset(offset):
    """A causal mask whose first query stands at offset(n_q, n_kv)."""
    return lambda n_q, n_kv: np.tril(np.ones((n_q, n_kv), bool), offset(n_q, n_kv))


def _cached_then_new(n_q, n_kv):
    cached = np.ones((n_q, n_kv - n_q), bool)
    return np.hstack([cached, np.tril(np.ones((n_q, n_q), bool))])


TOP_LEFT = (
    "Your mask starts in the top left corner, so query 0 stands at key 0. The queries are the last "
    "n_q positions: query i stands at i + n_kv - n_q and sees the keys up to there."
)

CAUSAL_MASK = Exercise(
    teaches="the queries are the last positions, with a cache too",
    task=(
        "Build the causal mask, boolean and of shape (n_q, n_kv): True where a query may attend. "
        "The queries are the last n_q of the n_kv positions, so query i may attend to key j if "
        "j <= i + n_kv - n_q, for any n_q and n_kv."
    ),
    difficulty=2,
    minutes=10,
    cases=_causal_mask_cases,
    random_case=_causal_mask_random,
    solution=causal_mask,
    faults=(
        (TOP_LEFT, _from_the_top_left()),
        (
            TOP_LEFT + " And leave it boolean, with True and False instead of ones and zeros.",
            lambda *sizes: _from_the_top_left()(*sizes) * 1.0,
        ),
        (POLARITY, lambda *sizes: ~causal_mask(*sizes)),
        (
            POLARITY + " Besides, it starts in the top left corner: query i stands at position "
            "i + n_kv - n_q.",
            lambda *sizes: ~_from_the_top_left()(*sizes),
        ),
        (
            "Your mask hides the diagonal: a query does not see its own position. It may, so the "
            "comparison is <= and not <.",
            _shifted(-1),
        ),
        (
            "Your mask hides the diagonal, and it starts in the top left corner: query i stands at "
            "position i + n_kv - n_q, and sees it.",
            _from_the_top_left(-1),
        ),
        (
            "Your mask looks ahead: each query sees one key behind its own position. The last that "
            "it may see is key i + n_kv - n_q.",
            _shifted(1),
        ),
        (
            "Your mask looks one key ahead, and it starts in the top left corner. The last key "
            "that query i may see is i + n_kv - n_q.",
            _from_the_top_left(1),
        ),
        (
            "Your mask shows the present and the future and hides the past. Turn the comparison "
            "round: j <= i + n_kv - n_q.",
            lambda n_q, n_kv: np.triu(np.ones((n_q, n_kv), bool), n_kv - n_q),
        ),
        (
            "Your mask is the upper triangle: it shows the future and hides the past. Take the "
            "lower one, and let query i stand at position i + n_kv - n_q.",
            lambda n_q, n_kv: np.triu(np.ones((n_q, n_kv), bool)),
        ),
        (
            "Your mask is transposed: rows are queries and columns are keys, (n_q, n_kv).",
            lambda *sizes: causal_mask(*sizes).T,
        ),
        (
            "You swapped n_q and n_kv. Rows are queries and columns are keys, (n_q, n_kv).",
            lambda n_q, n_kv: causal_mask(n_kv, n_q),
        ),
        (
            "You shifted the wrong way: your offset is n_q - n_kv. The queries come last, so query "
            "i stands at i + n_kv - n_q.",
            _offset(lambda n_q, n_kv: n_q - n_kv),
        ),
        (
            "Your offset never falls below 0. With fewer keys than queries n_kv - n_q is negative, "
            "and the first queries see nothing: leave it as it is.",
            _offset(lambda n_q, n_kv: max(n_kv - n_q, 0)),
        ),
        (
            "You dropped the sign of n_kv - n_q. With fewer keys than queries it is negative, and "
            "the first queries see nothing: leave it as it is.",
            _offset(lambda n_q, n_kv: abs(n_kv - n_q)),
        ),
        (
            "Your mask is square, n_q by n_q, and leaves out the keys that came before the "
            "queries. It has a column for each of the n_kv keys.",
            lambda n_q, n_kv: causal_mask(n_q, n_q),
        ),
        (
            "Your mask is square, n_kv by n_kv. Only the last n_q of these rows are queries.",
            lambda n_q, n_kv: causal_mask(n_kv, n_kv),
        ),
        (
            "Your mask allows everything. Query i stands at position i + n_kv - n_q and may not "
            "look behind it. An offset of n_kv, without - n_q, is too far.",
            lambda n_q, n_kv: np.ones((n_q, n_kv), bool),
        ),
        (
            "You put n_kv - n_q columns of earlier keys in front, and with fewer keys than queries "
            "that number is negative. The comparison j <= i + n_kv - n_q holds for any sizes.",
            _cached_then_new,
        ),
        (
            "You cut the last n_q rows out of a square mask, and with fewer keys than queries it "
            "has not so many. The comparison j <= i + n_kv - n_q holds for any sizes.",
            lambda n_q, n_kv: causal_mask(n_kv, n_kv)[-n_q:],
        ),
        (
            "You cut the first n_q rows out of a square mask. The queries are the last n_q "
            "positions: query i stands at i + n_kv - n_q and sees the keys up to there.",
            lambda n_q, n_kv: causal_mask(n_kv, n_kv)[:n_q],
        ),
        (NUMBERS, lambda *sizes: causal_mask(*sizes) * 1.0),
        (ADDITIVE, lambda *sizes: _additive(causal_mask(*sizes))),
        (
            ADDITIVE + " And query i stands at position i + n_kv - n_q: yours starts in the top "
            "left corner.",
            lambda *sizes: _additive(_from_the_top_left()(*sizes)),
        ),
    ),
    hints=(
        "Number the keys from 0. The last query stands at the last key: where does query 0 stand? "
        "And which keys may it see?",
        "`np.arange(n_q) + n_kv - n_q` says where the queries stand. Give them an axis of their "
        "own with `[:, None]`, and compare `np.arange(n_kv)` with them: <= gives True and False "
        "of shape (n_q, n_kv).",
    ),
)


def apply_mask(scores, mask):
    """Weights that are 0 where mask is False; every row of it allows some key."""
    return scratch.softmax(np.where(mask, scores, -np.inf))  # exp(-inf) is exactly 0


def _apply_mask_cases():
    rng = np.random.default_rng(11)
    first = np.array([[True, False]])
    some = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
    lengths = np.arange(5) < np.array([[[2]], [[4]]])  # (2, 1, 5)
    return [
        (np.zeros((1, 2)), first),
        (np.array([[0.0, 1000.0]]), first),
        (np.array([[-1e12, 0.0]]), first),
        (np.array([[0.0, 1e12]]), first),
        (np.array([[1000.0, 1000.0, 0.0]]), np.array([[True, True, False]])),
        (draw(rng, 3, 5), some),
        (draw(rng, 2, 3, 5), lengths),
        (draw(rng, 2, 3, 5), some),
    ]


def _apply_mask_random(rng):
    batch, n_q, n_kv = unequal(rng, 3)
    mask = rng.random((n_q, n_kv)) < 0.5
    mask[np.arange(n_q), rng.integers(n_kv, size=n_q)] = True
    return 3 * rng.normal(size=(batch, n_q, n_kv)), mask


def _added(number):
    """Weights with ``number`` added to forbidden scores."""
    return lambda scores, mask: softmax(scores + np.where(mask, 0, number))


def _hidden_by_index(turn):
    """Weights turn(scores), with the forbidden scores set through an index."""

    def faulty(scores, mask):
        scores[~mask] = -np.inf
        return turn(scores)

    return faulty


AFTERWARDS = (
    "You took the softmax first and put zeros into its weights afterwards, so a row no longer sums "
    "to 1. Hide the scores before the softmax."
)
SET_TO_ZERO = (
    "You set forbidden scores to 0. A score of 0 is not 'no attention', exp(0) is 1: set them to "
    "-inf."
)
ADDED_MASK = (
    "You added the mask to the scores. True counts as 1, so allowed keys get a little more and the "
    "others still something: set forbidden scores to -inf."
)
TIMES_INFINITY = (
    "You multiplied the mask by -inf. Where it is 0 that gives 0 * inf, which is NaN. Choose with "
    "np.where(mask, scores, -np.inf) instead."
)
UNMASKED = "You did not use the mask. Set the scores where it is False to -inf before the softmax."
MULTIPLIED_EXPONENTIALS = (
    "You multiplied exponentials by the mask. exp of a large hidden score is infinite, and 0 * inf "
    "is NaN: hide scores before exp, with np.where."
)
BY_INDEX = (
    "scores[~mask] fits as long as mask has the shape of the scores. A mask is broadcast over a "
    "batch by np.where, not by indexing: np.where(mask, scores, -np.inf)."
)
NO_SOFTMAX = (
    "Your scores are masked as they should be, but they are still scores: the softmax is missing."
)
OVER_THE_QUERIES = (
    "Your scores are masked as they should be, but your softmax ran over the queries (axis -2). It "
    "belongs on the last axis, the keys."
)
NO_MAXIMUM = (
    "Your scores are masked as they should be, but exp overflows at large scores, or is 0 at all "
    "the keys of a row: you get NaN. Subtract the largest allowed score of each row before exp."
)

APPLY_MASK = Exercise(
    teaches="a mask hides scores, before the softmax divides",
    task=(
        "Turn scores (..., n_q, n_kv) into weights that are positive where the boolean mask is "
        "True, 0 where it is False, and sum to 1 in every row. mask broadcasts to the scores, and "
        "here every row of it allows some key. Scores may be very large or very negative. "
        "scratch.softmax will do for the softmax."
    ),
    difficulty=1,
    minutes=8,
    cases=_apply_mask_cases,
    random_case=_apply_mask_random,
    solution=apply_mask,
    faults=(
        (INVERTED, lambda scores, mask: apply_mask(scores, ~mask)),
        (
            INVERTED + " So a row that allows everything is NaN.",
            filled(-np.inf, invert=True),
        ),
        (
            INVERTED + " And hide with -np.inf: below any finite number there may be a score.",
            filled(-1e9, invert=True),
        ),
        (AFTERWARDS, lambda scores, mask: softmax(scores) * mask),
        (
            "You took the softmax over all keys and divided again by what was left. A hidden score "
            "far above the others leaves 0 / 0: hide scores before the softmax.",
            lambda scores, mask: divided_again(softmax(scores), mask, guard=False),
        ),
        (
            "You took the softmax over all keys and divided again by what was left. A hidden score "
            "far above the others leaves nothing to divide: hide scores before the softmax.",
            lambda scores, mask: divided_again(softmax(scores), mask, guard=True),
        ),
        (SET_TO_ZERO, filled(0)),
        (
            SET_TO_ZERO + " Then there is nothing to clear after the softmax.",
            lambda scores, mask: filled(0)(scores, mask) * mask,
        ),
        (
            SET_TO_ZERO + " Then there is nothing to clear and to divide again, which fails where "
            "all allowed scores are far below 0.",
            lambda scores, mask: divided_again(filled(0)(scores, mask), mask, guard=False),
        ),
        (
            "You set forbidden scores to +inf, the largest score of all. Set them to -inf.",
            filled(np.inf),
        ),
        (
            "You put -inf into the weights. It belongs into the scores, before the softmax: exp "
            "then makes an exact 0 of it.",
            lambda scores, mask: np.where(mask, softmax(scores), -np.inf),
        ),
        (
            "You hid scores by a finite number, and here an allowed score lies far below it: the "
            "hidden key gets all the weight. Use -np.inf, which is below every score.",
            filled(-1e9),
        ),
        (
            "You added a large negative number to forbidden scores. One that was larger still "
            "stays the largest of its row. Set them to -inf: np.where(mask, scores, -np.inf).",
            _added(-1e9),
        ),
        (ADDED_MASK, lambda scores, mask: softmax(scores + mask)),
        (TIMES_INFINITY, lambda scores, mask: softmax(scores + (1 - mask) * -np.inf)),
        (UNMASKED, lambda scores, mask: softmax(scores)),
        (
            MULTIPLIED_EXPONENTIALS,
            lambda scores, mask: divided_again(np.exp(scores), mask, guard=True),
        ),
        (
            MULTIPLIED_EXPONENTIALS + " And where exp of all the allowed scores is 0, you divide "
            "0 by 0: subtract the largest allowed score first.",
            lambda scores, mask: divided_again(np.exp(scores), mask, guard=False),
        ),
        (NO_MAXIMUM, lambda scores, mask: bare_softmax_over(-1)(np.where(mask, scores, -np.inf))),
        (
            OVER_THE_QUERIES,
            lambda scores, mask: scratch.softmax(np.where(mask, scores, -np.inf), axis=-2),
        ),
        (
            OVER_THE_QUERIES + " A key that no query may look at made NaN there.",
            lambda scores, mask: softmax_over(-2, -2)(np.where(mask, scores, -np.inf)),
        ),
        (BY_INDEX, _hidden_by_index(softmax)),
        (NO_SOFTMAX, lambda scores, mask: np.where(mask, scores, -np.inf)),
    ),
    hints=(
        "A hidden key must be out before the softmax divides. Which score has an exponential of "
        "exactly 0?",
        "`np.where(mask, scores, -np.inf)` keeps the allowed scores, hides the others, and "
        "broadcasts the mask over a batch. Then `scratch.softmax`.",
    ),
)


def padding_mask(lengths, n_kv, side):
    """True at the real tokens of each sample; the padding stands at its left or right."""
    position = np.arange(n_kv)
    if side == "left":
        position = position[::-1]  # counted from the other end
    return position < lengths[:, None, None]  # (batch, 1, n_kv)


def _padding_mask_cases():
    return [
        (np.array([1]), 3, "right"),
        (np.array([1]), 3, "left"),
        (np.array([1, 3]), 4, "right"),
        (np.array([1, 3]), 4, "left"),
        (np.array([0, 2, 5]), 5, "right"),
        (np.array([4, 0, 2]), 5, "left"),
    ]


def _padding_mask_random(rng):
    batch, n_kv = unequal(rng, 2)
    return rng.integers(n_kv + 1, size=batch), n_kv, str(rng.choice(["left", "right"]))


def _padding(change=0, right="right"):
    """A padding mask with ``change`` tokens more in each sample, padded at ``right`` as at right.

    ``right`` may be empty: then every side is taken for the left.
    """

    def faulty(lengths, n_kv, side):
        position = np.arange(n_kv) if side == right else np.arange(n_kv)[::-1]
        return position < lengths[:, None, None] + change

    return faulty


def _padding_left_by_inversion(lengths, n_kv, side):
    mask = padding_mask(lengths, n_kv, "right")
    return mask if side == "right" else ~mask


def _padding_left_by_its_start(change):
    """Left padding that starts at another position."""

    def faulty(lengths, n_kv, side):
        if side == "right":
            return padding_mask(lengths, n_kv, side)
        return np.arange(n_kv) >= n_kv - lengths[:, None, None] + change

    return faulty


NO_QUERY_AXIS = (
    "Your mask is (batch, n_kv). The scores are (batch, n_q, n_kv), and NumPy would take your "
    "batch for queries: give it an axis of size 1 between the two, (batch, 1, n_kv)."
)

IGNORES_SIDE = (
    "Your function ignores side: it always puts the padding on the right. With padding on the left "
    "the last lengths[b] positions are real."
)

PADDING_MASK = Exercise(
    teaches="padding hides keys, by sample, on either side",
    task=(
        "Sample b of a batch has lengths[b] real tokens and is padded to n_kv, on the side "
        '"right" or "left". Build the boolean mask that hides the padding keys, of shape '
        "(batch, 1, n_kv), so that it broadcasts over the queries: True at real tokens. lengths is "
        "an array of whole numbers."
    ),
    difficulty=1,
    minutes=8,
    cases=_padding_mask_cases,
    random_case=_padding_mask_random,
    solution=padding_mask,
    faults=(
        (POLARITY, lambda *a: ~padding_mask(*a)),
        (
            "You swapped the sides. With padding on the right the real tokens come first, with "
            "padding on the left they come last.",
            _padding(right="left"),
        ),
        (
            IGNORES_SIDE,
            lambda lengths, n_kv, side: padding_mask(lengths, n_kv, "right"),
        ),
        (
            IGNORES_SIDE + " And True means 'may attend': you put it at the padding.",
            lambda lengths, n_kv, side: ~padding_mask(lengths, n_kv, "right"),
        ),
        (
            IGNORES_SIDE + " And lengths[b] tokens end at position lengths[b] - 1: < and not <=.",
            lambda lengths, n_kv, side: padding_mask(lengths + 1, n_kv, "right"),
        ),
        (
            IGNORES_SIDE + " And your mask lacks the axis of the queries: (batch, 1, n_kv).",
            lambda lengths, n_kv, side: padding_mask(lengths, n_kv, "right")[:, 0],
        ),
        (
            "Your padding is always on the left. With padding on the right the first lengths[b] "
            "positions are real. Does your comparison meet the word in side?",
            _padding(right=""),
        ),
        (
            "You allow one padding token in each sample. lengths[b] tokens stand at positions 0 to "
            "lengths[b] - 1: the comparison is < and not <=.",
            _padding(1),
        ),
        (
            "You hide one real token of each sample. lengths[b] tokens stand at positions 0 to "
            "lengths[b] - 1: the comparison is position < lengths.",
            _padding(-1),
        ),
        (
            "Padding on the right is right. On the left you hide one real token: these start at "
            "position n_kv - lengths[b], that one included.",
            _padding_left_by_its_start(1),
        ),
        (
            "Padding on the right is right. On the left you allow one padding token: the real ones "
            "start at position n_kv - lengths[b].",
            _padding_left_by_its_start(-1),
        ),
        (
            "Padding on the right is right. On the left you put True at the padding: the real "
            "tokens start at position n_kv - lengths[b].",
            lambda lengths, n_kv, side: padding_mask(lengths, n_kv, side) ^ (side == "left"),
        ),
        (
            "For padding on the left you turned True and False of the right's mask over. That "
            "starts at position lengths[b], and the real tokens start at n_kv - lengths[b].",
            _padding_left_by_inversion,
        ),
        (
            "For padding on the left you turned the whole mask round, samples and all. Turn the "
            "last axis only: [..., ::-1], or np.flip with axis=-1.",
            lambda lengths, n_kv, side: padding_mask(
                lengths if side == "right" else lengths[::-1], n_kv, side
            ),
        ),
        (
            "For padding on the left you turned the samples round, and not the positions. Turn the "
            "last axis: [..., ::-1], or np.flip with axis=-1.",
            lambda lengths, n_kv, side: padding_mask(
                lengths if side == "right" else lengths[::-1], n_kv, "right"
            ),
        ),
        (NO_QUERY_AXIS, lambda *a: padding_mask(*a)[:, 0]),
        (
            NO_QUERY_AXIS + " And True means 'may attend': you put it at the padding.",
            lambda *a: ~padding_mask(*a)[:, 0],
        ),
        (
            NO_QUERY_AXIS + " And leave it boolean, with True and False instead of 1 and 0.",
            lambda *a: padding_mask(*a)[:, 0] * 1.0,
        ),
        (
            "Positions and lengths met entry by entry. Each sample is compared with all positions: "
            "give lengths axes of their own, lengths[:, None, None].",
            lambda lengths, n_kv, side: np.arange(n_kv)[:: 1 if side == "right" else -1] < lengths,
        ),
        (
            "Your mask is (batch, n_kv, 1): it hides queries. Padding must not be looked at, so "
            "it is keys that are hidden, and these are the last axis: (batch, 1, n_kv).",
            lambda *a: padding_mask(*a).swapaxes(-1, -2),
        ),
        (
            "Your axis of size 1 stands in front of the batch. It is the queries' axis, between "
            "batch and keys: (batch, 1, n_kv).",
            lambda *a: padding_mask(*a).swapaxes(0, 1),
        ),
        (
            "Your mask has an axis for the heads as well, (batch, 1, 1, n_kv). It is asked for "
            "without: (batch, 1, n_kv).",
            lambda *a: padding_mask(*a)[:, None],
        ),
        (
            "You repeated the mask for n_kv queries. One row is enough, (batch, 1, n_kv): it "
            "broadcasts, and there may be another number of queries than of keys.",
            lambda *a: np.repeat(padding_mask(*a), a[1], axis=1),
        ),
        (
            "You hid padding queries as well, (batch, n_kv, n_kv). A mask for padding says which "
            "keys may be looked at, and it is the same for every query: (batch, 1, n_kv).",
            lambda *a: padding_mask(*a) & padding_mask(*a).swapaxes(-1, -2),
        ),
        (
            "Your mask is as wide as the longest sample. It has n_kv columns: all may be padded.",
            lambda lengths, n_kv, side: padding_mask(lengths, lengths.max(), side),
        ),
        (NUMBERS, lambda *a: padding_mask(*a) * 1.0),
        (ADDITIVE, lambda *a: _additive(padding_mask(*a))),
    ),
    hints=(
        "Compare positions with lengths. Which axis do the positions have, which the lengths, and "
        "what stands between them? For the left, count positions from the other end.",
        "`lengths[:, None, None]` is (batch, 1, 1), and `np.arange(n_kv) <` it gives "
        "(batch, 1, n_kv). With padding on the left, real tokens are those at position "
        "n_kv - lengths[b] and later; or compare `np.arange(n_kv)[::-1]`.",
    ),
)


def masked_softmax(scores, mask):
    """Softmax over the keys where mask is True; a row without any is all zeros."""
    hidden = np.where(mask, scores, -np.inf)
    top = hidden.max(axis=-1, keepdims=True)
    top = np.where(np.isneginf(top), 0, top)  # in a row without keys: -inf - 0, and not NaN
    exponentials = np.exp(hidden - top)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(total == 0, 1, total)  # in a row without keys: 0 / 1


def _masked_softmax_cases():
    rng = np.random.default_rng(12)
    some = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
    none_in_row_1 = some & np.array([[True], [False], [True]])
    lengths = np.arange(5) < np.array([[[3]], [[0]]])  # (2, 1, 5): sample 1 is padding alone
    first_row = np.array([[True, True, False], [False, False, False]])
    return [
        (np.zeros((1, 2)), np.zeros((1, 2), bool)),
        (np.zeros((2, 3)), first_row),
        (np.array([[0.0, 1000.0]]), np.array([[True, False]])),
        (np.array([[1000.0, 1000.0], [-1000.0, 0.0]]), np.array([[True, True], [True, False]])),
        (draw(rng, 3, 5), some),
        (draw(rng, 3, 5), none_in_row_1),
        (draw(rng, 2, 3, 5), lengths),
        (draw(rng, 2, 3, 5), none_in_row_1),
    ]


def _masked_softmax_random(rng):
    batch, n_q, n_kv = unequal(rng, 3)
    mask = rng.random((n_q, n_kv)) < 0.5
    mask[rng.integers(n_q)] = False
    return 3 * rng.normal(size=(batch, n_q, n_kv)), mask


def _zeros_if(empty, weights):
    """Weights with zeros where ``empty`` says so."""
    return np.where(empty, 0, weights)


def _no_key(mask):
    return ~mask.any(axis=-1, keepdims=True)


EMPTY_NAN = "Then see to rows without any allowed key: yours are NaN, and should be zeros."
TOO_HIGH = (
    "You hid scores by a finite number, and an allowed one lies far below it: the hidden key takes "
    "all the weight. Use -np.inf, which is below every score."
)
EMPTY_UNIFORM = "Then see to rows without any allowed key: yours hold weights, and should be zeros."

MASKED_SOFTMAX = Exercise(
    teaches="a row without any allowed key is zeros, and never NaN",
    task=(
        "Turn scores (..., n_q, n_kv) into weights over the keys that the boolean mask allows, as "
        "before. mask broadcasts to the scores, and now a row may allow no key at all: its weights "
        "are all 0, and NaN is nowhere. scratch.softmax does this for you, so write it with np "
        "alone."
    ),
    difficulty=2,
    minutes=12,
    cases=_masked_softmax_cases,
    random_case=_masked_softmax_random,
    solution=masked_softmax,
    faults=(
        (INVERTED, lambda scores, mask: masked_softmax(scores, ~mask)),
        (INVERTED + " " + EMPTY_NAN, filled(-np.inf, invert=True)),
        (INVERTED + " " + EMPTY_UNIFORM, filled(-1e9, invert=True)),
        (
            "A row without any allowed key is NaN in your function: its maximum is -inf, and "
            "-inf - (-inf) is NaN; so is 0 / 0. It should be zeros.",
            filled(-np.inf),
        ),
        (
            "A row without any allowed key has equal weights in your function: all its scores are "
            "the same very negative number, and a softmax sees only differences. It should be "
            "zeros.",
            filled(-1e30),
        ),
        (
            "A row without any allowed key has the weights of an unmasked one in your function. A "
            "large negative number added to all its scores alike changes none of them, for "
            "instance. It should be zeros.",
            _added(-1e9),
        ),
        (AFTERWARDS, lambda scores, mask: softmax(scores) * mask),
        (
            "You took the softmax over all keys and divided again by what was left. That is 0 / 0, "
            "which is NaN, in a row without any allowed key, and where a hidden score is far above "
            "the others: hide scores before the softmax.",
            lambda scores, mask: divided_again(softmax(scores), mask, guard=False),
        ),
        (
            "You took the softmax over all keys and divided again by what was left. A hidden score "
            "far above the others leaves nothing to divide: hide scores before the softmax.",
            lambda scores, mask: divided_again(softmax(scores), mask, guard=True),
        ),
        (
            "One row without any allowed key turns all your weights to zeros. Each row is judged "
            "by itself: mask.any(axis=-1, keepdims=True).",
            lambda s, mask: _zeros_if(_no_key(mask).any(), masked_softmax(s, mask)),
        ),
        (
            "You take care of the case that nothing at all is allowed, and a row without any key "
            "among others is still NaN. Ask row by row: mask.any(axis=-1, keepdims=True).",
            lambda s, mask: _zeros_if(not mask.any(), filled(-np.inf)(s, mask)),
        ),
        (
            "You take care of the case that nothing at all is allowed, and a row without any key "
            "among others still has weights. Ask row by row: mask.any(axis=-1, keepdims=True).",
            lambda s, mask: _zeros_if(not mask.any(), filled(-1e30)(s, mask)),
        ),
        (
            "You clear a whole row as soon as one key is forbidden. Only a row without any allowed "
            "key is zeros: any, and not all.",
            lambda s, mask: _zeros_if(~mask.all(-1, keepdims=True), masked_softmax(s, mask)),
        ),
        (
            "Your rows without any allowed key are right, and other hidden keys get weight: the "
            "mask must hide scores in every row, with -inf, before the softmax.",
            lambda s, mask: _zeros_if(_no_key(mask), softmax(s)),
        ),
        (SET_TO_ZERO, filled(0)),
        (
            SET_TO_ZERO + " Rows without any allowed key are right.",
            lambda s, mask: _zeros_if(_no_key(mask), filled(0)(s, mask)),
        ),
        (ADDED_MASK, lambda scores, mask: softmax(scores + mask)),
        (TIMES_INFINITY, lambda scores, mask: softmax(scores + (1 - mask) * -np.inf)),
        (
            "All your weights are 0. If nan_to_num came last, all was NaN before it: (1 - mask) * "
            "-np.inf is 0 * inf, which is NaN, where mask is True. Choose with np.where instead.",
            lambda s, mask: np.nan_to_num(softmax(s + (1 - mask) * -np.inf)),
        ),
        (
            TOO_HIGH + " A row without any allowed key is right.",
            lambda s, mask: filled(-100)(s, mask) * mask,
        ),
        (TOO_HIGH + " " + EMPTY_UNIFORM, filled(-100)),
        (UNMASKED, lambda scores, mask: softmax(scores)),
        (
            MULTIPLIED_EXPONENTIALS,
            lambda scores, mask: divided_again(np.exp(scores), mask, guard=True),
        ),
        (
            MULTIPLIED_EXPONENTIALS + " " + EMPTY_NAN,
            lambda scores, mask: divided_again(np.exp(scores), mask, guard=False),
        ),
        (
            NO_MAXIMUM + " Rows without any allowed key are right.",
            lambda s, mask: divided_again(np.exp(np.where(mask, s, -np.inf)), mask, guard=True),
        ),
        (
            NO_MAXIMUM + " " + EMPTY_NAN,
            lambda s, mask: bare_softmax_over(-1)(np.where(mask, s, -np.inf)),
        ),
        (BY_INDEX + " " + EMPTY_NAN, _hidden_by_index(softmax)),
        (BY_INDEX, _hidden_by_index(scratch.softmax)),
        (NO_SOFTMAX, lambda scores, mask: np.where(mask, scores, -np.inf)),
    ),
    hints=(
        "What is the largest score of a row whose scores are all -inf, and what is -inf minus "
        "that? And what is its sum of exponentials? Give both another value in such a row.",
        "Hide with `np.where(mask, scores, -np.inf)`. In a row without keys the maximum is -inf: "
        "put 0 in its place before you subtract it, and all exponentials are 0. Their sum is 0 as "
        "well: put 1 in its place before you divide by it. `np.where` does both.",
    ),
)


def to_module_head_masks(mask, num_heads):
    """The mask (N * num_heads, n_q, n_kv) of nn.MultiheadAttention: True = blocked."""
    return np.repeat(~mask, num_heads, axis=0)  # sample 0 for every head, sample 1 for every head


def _to_module_head_masks_cases():
    rng = np.random.default_rng(13)
    causal, two = np.tril(np.ones((2, 2), bool)), np.array([[[True, True]], [[True, False]]])
    return [
        (two[1:], 1),
        (two, 2),
        (np.stack([causal, causal & [True, False]]), 2),
        (rng.random((2, 2, 3)) < 0.6, 3),
        (rng.random((3, 2, 4)) < 0.6, 2),
    ]


def _to_module_head_masks_random(rng):
    batch, n_q, n_kv, num_heads = unequal(rng, 4)
    return rng.random((batch, n_q, n_kv)) < 0.5, num_heads


MODULE_POLARITY = (
    "You left out the inversion: our True means 'may attend', and nn.MultiheadAttention's means "
    "'blocked'. Write ~mask."
)
TILED = (
    "Your samples follow each other, M0, M1, M0, M1. The module counts all the heads of sample 0, "
    "then all of sample 1: M0, M0, M1, M1, which is np.repeat and not np.tile."
)


def _tiled(mask, num_heads):
    return np.tile(~mask, (num_heads, 1, 1))


def _head_axis(mask, num_heads):
    return np.repeat(~mask[:, None], num_heads, axis=1)


TO_MODULE_MASK = Exercise(
    teaches="libraries disagree on what True means, and on the order of heads",
    task=(
        "mask is our boolean mask for a batch, (N, n_q, n_kv), where True means 'may attend'. "
        "Return the one that nn.MultiheadAttention takes for N samples of num_heads heads: "
        "boolean, (N * num_heads, n_q, n_kv), where True means 'blocked', with all the heads of "
        "sample 0 first, then those of sample 1."
    ),
    difficulty=1,
    minutes=5,
    cases=_to_module_head_masks_cases,
    random_case=_to_module_head_masks_random,
    solution=to_module_head_masks,
    faults=(
        (MODULE_POLARITY, lambda mask, h: np.repeat(mask, h, axis=0)),
        (TILED, _tiled),
        (TILED + " And invert it: True means 'blocked' there.", lambda *a: ~_tiled(*a)),
        (
            "Your heads have an axis of their own, (N, num_heads, n_q, n_kv). The module takes "
            "batch and heads as one axis, (N * num_heads, n_q, n_kv): join them with reshape.",
            _head_axis,
        ),
        (
            "Your heads have an axis of their own: join it with the batch, to "
            "(N * num_heads, n_q, n_kv). And invert the mask: True means 'blocked' there.",
            lambda *a: ~_head_axis(*a),
        ),
        (
            "Your heads have an axis of their own, in front, (num_heads, N, n_q, n_kv). They stand "
            "behind the batch, and both are one axis: (N * num_heads, n_q, n_kv).",
            lambda *a: _head_axis(*a).swapaxes(0, 1),
        ),
        (
            "You gave the batch and the heads one axis each, of which the heads' has size 1. The "
            "module does not broadcast: repeat each sample num_heads times.",
            lambda mask, h: ~mask[:, None],
        ),
        (
            "You inverted the mask and stopped. The module wants one for every head: repeat each "
            "sample num_heads times, (N * num_heads, n_q, n_kv).",
            lambda mask, h: ~mask,
        ),
        (
            "You returned the mask of one head of each sample as it came. Invert it, and repeat "
            "each sample num_heads times.",
            lambda mask, h: mask.copy(),
        ),
        (
            "Your masks are transposed. Rows stay queries and columns keys, as they were: "
            "(N * num_heads, n_q, n_kv).",
            lambda *a: to_module_head_masks(*a).swapaxes(-1, -2),
        ),
        (
            "np.repeat without an axis lays the mask out flat first. Repeat samples: axis=0.",
            lambda mask, h: np.repeat(~mask, h),
        ),
        (
            "You laid the mask out flat, repeated its entries and shaped the result, so entries "
            "have moved. Repeat whole samples: np.repeat with axis=0.",
            lambda mask, h: np.repeat(~mask, h).reshape(-1, *mask.shape[1:]),
        ),
        (
            "You repeated the queries. It is the samples that are repeated, axis 0.",
            lambda mask, h: np.repeat(~mask, h, axis=1),
        ),
        (
            "You repeated the keys. It is the samples that are repeated, axis 0.",
            lambda mask, h: np.repeat(~mask, h, axis=2),
        ),
        (
            "np.tile with a number alone repeats the keys. It is the samples that are repeated, "
            "one by one: np.repeat with axis=0.",
            lambda mask, h: np.tile(~mask, h),
        ),
        (
            "You repeated the queries and cut the result into samples again. That mixes rows: "
            "repeat the samples themselves, axis 0.",
            lambda mask, h: np.repeat(~mask, h, axis=1).reshape(-1, *mask.shape[1:]),
        ),
        (NUMBERS, lambda *a: to_module_head_masks(*a) * 1.0),
        (
            "You made the additive form, with -inf where a query may not look. The module takes it "
            "too, but the boolean one is asked for: True where it is blocked.",
            lambda *a: _additive(~to_module_head_masks(*a)),
        ),
    ),
    hints=(
        "Two things change: what True means, and how often each sample's mask stands there. In "
        "which order do samples and heads follow each other?",
        "`~mask` swaps True and False. `np.repeat`, with `axis=0`, writes every sample num_heads "
        "times before it goes on to the next; `np.tile` would begin again with sample 0.",
    ),
)


def pack_documents(lengths):
    """True where a key is of the query's document and does not stand behind the query."""
    document = np.repeat(np.arange(len(lengths)), lengths)  # which document each token is of
    same = document[:, None] == document  # (n, n)
    return np.tril(same)


def _pack_documents_cases():
    return [(np.array(lengths),) for lengths in ([2], [1, 2], [2, 2], [3, 1, 2], [2, 4, 1, 3])]


def _pack_documents_random(rng):
    return (np.array(unequal(rng, int(rng.integers(2, 5)), lowest=1)),)


def _packed(combine, document=None):
    """The mask combine(same document, key not behind its query), perhaps with other documents."""

    def faulty(lengths):
        numbers = np.repeat(np.arange(len(lengths)), lengths)
        numbers = numbers if document is None else document(lengths)
        same = numbers[:, None] == numbers
        return combine(same, np.tril(np.ones_like(same)))

    return faulty


def _borders(change, side):
    """Documents whose borders are found by search, one token too late or too early."""
    return lambda lengths: np.searchsorted(
        np.cumsum(lengths) + change, np.arange(lengths.sum()), side
    )


def _blocks(compare):
    """A mask of whole documents: compare(the query's document, the key's)."""

    def faulty(lengths):
        document = np.repeat(np.arange(len(lengths)), lengths)
        return compare(document[:, None], document)

    return faulty


def _block_by_block(start, longer=0):
    """Causal blocks that begin at start(lengths) and are ``longer`` tokens longer."""

    def faulty(lengths):
        mask = np.zeros((lengths.sum(), lengths.sum()), bool)
        for first, length in zip(start(lengths), lengths + longer):
            block = mask[first : first + length, first : first + length]
            block[...] = np.tri(*block.shape, dtype=bool)
        return mask

    return faulty


def _starts(lengths):
    return np.cumsum(lengths) - lengths


def _padded_batch(lengths):
    n = lengths.max()
    return np.tril(np.ones((n, n), bool)) & (np.arange(n) < lengths[:, None, None])


PACK_DOCUMENTS = Exercise(
    teaches="conditions on who may see whom are joined by &",
    task=(
        "Documents of these lengths stand one after another in a single row of n = sum(lengths) "
        "tokens. Return the boolean mask (n, n) by which every token sees the tokens of its own "
        "document, up to itself, and nothing of the others. lengths is an array of whole numbers."
    ),
    difficulty=3,
    minutes=12,
    cases=_pack_documents_cases,
    random_case=_pack_documents_random,
    solution=pack_documents,
    faults=(
        (
            "Your documents are apart, as they should be, but inside them tokens see the future. "
            "Combine with the causal mask: &, or np.tril.",
            _packed(lambda same, causal: same),
        ),
        (
            "Your mask is plainly causal: a token sees the documents before its own as well. Allow "
            "a key only if it is of the query's document.",
            _packed(lambda same, causal: causal),
        ),
        (POLARITY, lambda lengths: ~pack_documents(lengths)),
        (
            "In your mask a token sees all of its own document and all before it. 'The same "
            "document' and 'not in the future' must both hold: & and not |.",
            _packed(lambda same, causal: same | causal),
        ),
        (
            "The first token of each document counts as one of the document before, in your mask. "
            "Document 1 starts at position lengths[0]: that token is its own.",
            _packed(lambda same, causal: same & causal, _borders(0, "left")),
        ),
        (
            "The last token of each document counts as one of the next, in your mask. Document 0 "
            "ends with position lengths[0] - 1, that token included.",
            _packed(lambda same, causal: same & causal, _borders(-1, "right")),
        ),
        (
            "In your mask a token sees the documents before its own, and its own not at all. It "
            "is the other way round: key and query are of the same document.",
            _blocks(lambda query, key: key < query),
        ),
        (
            "In your mask a token sees all the other documents. Key and query should be of the "
            "same one, and the key not behind the query.",
            _blocks(lambda query, key: key != query),
        ),
        (
            "Your mask keeps a token from itself. It sees its document up to itself, and that "
            "includes it: the diagonal is True.",
            lambda lengths: np.tril(pack_documents(lengths), -1),
        ),
        (
            "Your mask looks one token ahead inside a document. A token sees its document up to "
            "itself.",
            _packed(lambda same, causal: same & np.tril(np.ones_like(same), 1)),
        ),
        (
            "Inside a document your tokens see the future and not the past: take the lower "
            "triangle, np.tril.",
            lambda lengths: pack_documents(lengths).T,
        ),
        (
            "You cut the row into documents of equal length. They end where lengths says.",
            _packed(
                lambda same, causal: same & causal,
                lambda lengths: np.arange(lengths.sum()) * len(lengths) // lengths.sum(),
            ),
        ),
        (
            "All your documents start at position 0. Each starts where the one before it ends: "
            "add up the lengths as you go.",
            _block_by_block(lambda lengths: 0 * lengths),
        ),
        (
            "Each of your documents starts at the length of the one before it. It starts where "
            "that one ends, at the sum of all the lengths before: add them up as you go.",
            _block_by_block(lambda lengths: np.append(0, lengths[:-1])),
        ),
        (
            "Your blocks are one token too long: the first token of a document sees the one before "
            "it as well. A document fills start : start + length, whose end is left out.",
            _block_by_block(_starts, longer=1),
        ),
        (
            "Your blocks are one token too short: the last token of each document sees nothing. A "
            "document fills start : start + length, whose end is left out.",
            _block_by_block(_starts, longer=-1),
        ),
        (
            "You made a padded batch, with a mask for each document. Packed documents stand in one "
            "row: a single mask (n, n), with n = sum(lengths).",
            _padded_batch,
        ),
        (
            "Your mask is the identity: each token sees itself alone. It also sees those of its "
            "document that come before it.",
            lambda lengths: np.eye(lengths.sum(), dtype=bool),
        ),
        (NUMBERS, lambda lengths: pack_documents(lengths) * 1.0),
        (ADDITIVE, lambda lengths: _additive(pack_documents(lengths))),
    ),
    hints=(
        "Two conditions, joined with &. For one of them, write down beside every token the number "
        "of its document, such as 0 0 0 1 2 2.",
        "`np.arange` numbers the documents, and `np.repeat` with lengths writes each number as "
        "often as its document has tokens. Compare that, as a column, `[:, None]`, with itself: "
        "the result is a mask of blocks. `np.tril` takes the future out of it.",
    ),
)

EXERCISES = (
    APPLY_MASK,
    MASKED_SOFTMAX,
    CAUSAL_MASK,
    PADDING_MASK,
    TO_MODULE_MASK,
    PACK_DOCUMENTS,
)
