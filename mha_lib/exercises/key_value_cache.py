"""Exercises of the chapter on decoding with a key-value cache and on heads that share keys."""

from fractions import Fraction
from itertools import product

import numpy as np

from mha_lib import scratch
from mha_lib.exercises.draw import draw, unequal
from mha_lib.exercises.faulty import attention_scaled, attention_weighted, products, softmax_over
from mha_lib.exercises.judge import Exercise
from mha_lib.exercises.masking import ADDITIVE, NUMBERS, POLARITY
from mha_lib.exercises.single_head import softmax

COMMON = 4


def _one_or_two(first, second):
    """Pairs of sentences: all single faults, then the common ones of both together.

    The right way is "" in both dicts and stands first; the common faults follow.
    """
    singles = [(a, "") for a in first if a] + [("", b) for b in second if b]
    common = (list(faults)[1 : COMMON + 1] for faults in (first, second))
    return singles + list(product(*common))


def _joined(*sentences):
    return " ".join(filter(None, sentences))


def cached_step(query, key, value, keys, values):
    """The new token's output (1, d_v), and the cache with its key and value appended."""
    keys = np.concatenate([keys, key])  # (t + 1, d_k): the new token sees itself too
    values = np.concatenate([values, value])  # (t + 1, d_v)
    scores = query @ keys.T / np.sqrt(query.shape[-1])  # (1, t + 1), and no mask: it comes last
    return scratch.softmax(scores) @ values, keys, values


def _step_case(rng, t, d_k, d_v):
    return (
        draw(rng, 1, d_k),
        draw(rng, 1, d_k),
        draw(rng, 1, d_v),
        draw(rng, t, d_k),
        draw(rng, t, d_v),
    )


def _cached_step_cases():
    rng = np.random.default_rng(21)
    sizes = (0, 1, 2), (1, 1, 2), (2, 2, 2), (0, 3, 2), (3, 4, 2), (4, 3, 3), (5, 3, 6), (9, 5, 4)
    return [_step_case(rng, *size) for size in sizes]


def _cached_step_random(rng):
    return _step_case(rng, *unequal(rng, 3))


def _hidden_new_token(q, k, v):
    """The new token hidden by a mask; without another it has nothing to look at: NaN."""
    visible = np.arange(len(k)) < len(k) - 1
    return softmax(np.where(visible, products(q, k) / np.sqrt(q.shape[-1]), -np.inf)) @ v


OWN_KEY = (
    "Your new token does not see itself. Its key and value are appended first, and then it attends "
    "to all t + 1."
)
attention = attention_weighted(softmax)
# The output from query and the appended keys and values, as people compute it.
OUTPUTS = {
    "": attention,
    OWN_KEY + " That is also why your step fails on an empty cache.": (
        lambda q, k, v: attention(q, k[:-1], v[:-1])
    ),
    "Your new token sees the first key only, as under a causal mask that starts in the top left "
    "corner. It stands last and may see every key: leave the mask out.": lambda q, k, v: v[:1],
    "You left out the scale: divide the scores by the square root of d_k.": (
        attention_scaled(lambda q, k, v: 1)
    ),
    "You scaled by the values' width. It is queries and keys that the scores are made of: divide "
    "by the square root of d_k.": attention_scaled(lambda q, k, v: v.shape[-1] ** 0.5),
    OWN_KEY + " That is also why your output is NaN with an empty cache.": _hidden_new_token,
    OWN_KEY + " With an empty cache your output is 0, and it should be the token's own value.": (
        lambda q, k, v: np.nan_to_num(_hidden_new_token(q, k, v))
    ),
    "You scaled by the number of keys. It is the length of query and key that makes scores large: "
    "divide by the square root of d_k.": attention_scaled(lambda q, k, v: len(k) ** 0.5),
    "You scaled by the number of tokens in the cache, which is 0 at first. Divide by the square "
    "root of d_k.": attention_scaled(lambda q, k, v: (len(k) - 1) ** 0.5),
    "You divided the scores by d_k. Divide by its square root.": (
        attention_scaled(lambda q, k, v: q.shape[-1])
    ),
    "You multiplied the scores by the square root of d_k. Divide by it.": (
        attention_scaled(lambda q, k, v: q.shape[-1] ** -0.5)
    ),
    "Your softmax ran over the queries, and there is one: all weights are 1. It belongs on the "
    "last axis, the keys.": attention_weighted(softmax_over(0)),
    "You mixed the values by the scores. The softmax is missing.": attention_weighted(lambda s: s),
    "You mixed the values by exp(scores) and did not divide by their sum.": (
        attention_weighted(np.exp)
    ),
    "You mixed the values by exp(scores - maximum) and did not divide by their sum.": (
        attention_weighted(lambda s: np.exp(s - s.max()))
    ),
    "Your output is the plain mean of the values. The weights come from query and keys.": (
        attention_weighted(lambda s: np.full(s.shape, 1 / s.size))
    ),
    "Your output is the new token's own value. It attends to all the cached keys as well.": (
        lambda q, k, v: v[-1:]
    ),
    "Your output is the value with the largest weight. All values are mixed.": (
        attention_weighted(lambda s: np.eye(s.size)[[s.argmax()]])
    ),
    "Your softmax counts the new key, but its value is not mixed in. Append the value as well "
    "before you attend.": lambda q, k, v: attention(
        q, k, v * (np.arange(len(v)) < len(v) - 1)[:, None]
    ),
    "You attended with the new token's key. Its query asks; the key is there to be found.": (
        lambda q, k, v: softmax(products(k[-1:], k) / np.sqrt(q.shape[-1])) @ v
    ),
    "You mixed the keys. Keys say how much of each token is taken, values what is taken.": (
        lambda q, k, v: attention(q, k, k)
    ),
}
# What is returned as the cache, from old arrays and new rows.
KEPT = {
    "": lambda cache, new: np.concatenate([cache, new]),
    "You returned the cache as it came. The next step needs the new key and value too: return "
    "the arrays with t + 1 rows.": lambda cache, new: cache,
    "You put the new token in front. For the output the order of the keys is all one, but masks "
    "and the next reader count on it: new rows go behind the old ones.": (
        lambda cache, new: np.concatenate([new, cache])
    ),
    "You returned the new row alone. The cache holds the earlier tokens too, t + 1 rows.": (
        lambda cache, new: new
    ),
    "You appended the new token twice. The cache grows by one row a step.": (
        lambda cache, new: np.concatenate([cache, new, new])
    ),
}


def _kept(keep_keys, keep_values, output=attention):
    """A step with a fault in what it computes, in what it returns, or in both."""

    def faulty(query, key, value, keys, values):
        right = np.concatenate([keys, key]), np.concatenate([values, value])
        return output(query, *right), keep_keys(keys, key), keep_values(values, value)

    return faulty


def _grown(grow_keys, grow_values=None):
    """A step that attends to, and returns, arrays that grew as grow(cache, new row) says."""

    def faulty(query, key, value, keys, values):
        keys, values = grow_keys(keys, key), (grow_values or grow_keys)(values, value)
        return attention(query, keys, values), keys, values

    return faulty


def _overwrite(cache, new):
    cache[-1] = new[0]
    return cache


def _query_appended(query, key, value, keys, values):
    return cached_step(query, query, value, keys, values)


def _other_order(*order):
    return lambda *arguments: tuple(cached_step(*arguments)[i] for i in order)


def _cached_step_faults():
    append = KEPT[""]
    for o, k in _one_or_two(OUTPUTS, KEPT):
        yield _joined(o, k), _kept(KEPT[k], KEPT[k], OUTPUTS[o])
    for name, other in (("keys", "values"), ("values", "keys")):
        old = (append, lambda cache, new: cache)
        yield (
            f"You returned the {name} as they came, and appended to the {other} only. Both grow.",
            _kept(*(old[::-1] if name == "keys" else old)),
        )
        front = (append, lambda cache, new: np.concatenate([new, cache]))
        yield (
            f"You put the new row in front of the {name} and behind the {other}, so that a key no "
            "longer stands beside its own value. Append to both.",
            _grown(*(front[::-1] if name == "keys" else front)),
        )


CACHED_STEP = Exercise(
    teaches="one row of keys and one of values is all that a step adds",
    task=(
        "One decoding step of one head, without projections. query, key (1, d_k) and value "
        "(1, d_v) belong to the new token, and the cache holds the t earlier ones: keys (t, d_k) "
        "and values (t, d_v), where t may be 0. Append the new key and value, attend with the "
        "query to all t + 1, with the usual scale, and return output (1, d_v), keys "
        "(t + 1, d_k) and values (t + 1, d_v), as return output, keys, values. The arrays that "
        "came stay as they are. scratch.softmax will do for the softmax."
    ),
    difficulty=1,
    minutes=10,
    cases=_cached_step_cases,
    random_case=_cached_step_random,
    solution=cached_step,
    faults=(
        *_cached_step_faults(),
        (
            "You appended the query in the place of the key. A query is used once, in its own "
            "step; it is the key that later tokens look for.",
            _query_appended,
        ),
        (
            "You swapped key and value: the key goes to the keys, the value to the values. Where "
            "both are equally wide, no error tells you.",
            lambda q, k, v, keys, values: cached_step(q, v, k, keys, values),
        ),
        (
            "You wrote the new token over the last row. The cache grows: the new row goes behind "
            "it.",
            _grown(lambda cache, new: np.concatenate([cache[:-1], new])),
        ),
        (
            "You wrote the new token over the last row, and an empty cache has none. The cache "
            "grows: np.concatenate([keys, key]).",
            _grown(_overwrite),
        ),
        (
            "You dropped the oldest token, as a rolling window does once it is full. Here every "
            "token is kept.",
            _grown(lambda cache, new: np.concatenate([cache[1:], new])),
        ),
        (
            "Your cache starts afresh: the earlier tokens are lost, for the output and for the "
            "next step. Put the new row behind them.",
            _grown(lambda cache, new: new),
        ),
        (
            "You appended the new token twice, before you attended, so that it counts double.",
            _grown(lambda cache, new: np.concatenate([cache, new, new])),
        ),
        (
            "You returned values before keys. The order is output, keys, values.",
            _other_order(0, 2, 1),
        ),
        (
            "You returned the output last. The order is output, keys, values.",
            _other_order(1, 2, 0),
        ),
    ),
    hints=(
        "Which keys may the new token see? All the earlier ones, and one more. So what has to "
        "happen first, and is there anything left for a mask to hide?",
        "`np.concatenate([keys, key])` is a new array of t + 1 rows; do the same for values. "
        "With these it is attention with one query: `query @ keys.T` over the square root of "
        "d_k, which is `query.shape[-1]`, a softmax, times values.",
    ),
)


def chunk_mask(n_new, n_cached):
    """True where a new token may attend: to all cached ones, the new ones before it, and itself."""
    position = n_cached + np.arange(n_new)  # where the new tokens stand
    return np.arange(n_cached + n_new) <= position[:, None]  # (n_new, n_cached + n_new)


def _chunk_mask_cases():
    return [(1, 1), (2, 0), (2, 1), (1, 3), (2, 2), (2, 3), (3, 2), (4, 1), (3, 5)]


def _chunk_mask_random(rng):
    return tuple(unequal(rng, 2, lowest=1))


def _chunk(n_new, n_cached, offset):
    return np.tri(n_new, n_cached + n_new, offset, dtype=bool)


def _triangle(n_new):
    return np.tri(n_new, dtype=bool)


def _cached_and(new, cached=np.ones):
    """A mask with ``cached`` on the cached keys and new(n_new) on the new ones."""
    return lambda n, c: np.hstack([cached((n, c), bool), new(n)])


CHUNK_TOP_LEFT = (
    "Your mask starts in the top left corner, so the first new token stands at key 0. It stands "
    "behind the n_cached others: new token i sees the keys up to n_cached + i."
)
CHUNK_MASK = Exercise(
    teaches="several tokens at once need a mask, and it is not square",
    task=(
        "n_new tokens arrive at once, behind n_cached whose keys are in the cache already. Build "
        "their mask, boolean and of shape (n_new, n_cached + n_new): True where a new token may "
        "attend. It sees every cached token, the new ones before it, and itself. n_cached may "
        "be 0."
    ),
    difficulty=1,
    minutes=6,
    cases=_chunk_mask_cases,
    random_case=_chunk_mask_random,
    solution=chunk_mask,
    faults=(
        (CHUNK_TOP_LEFT, lambda n, c: _chunk(n, c, 0)),
        (
            CHUNK_TOP_LEFT + " And leave it boolean, with True and False instead of ones and "
            "zeros.",
            lambda n, c: _chunk(n, c, 0) * 1.0,
        ),
        (POLARITY, lambda n, c: ~chunk_mask(n, c)),
        (
            POLARITY + " Besides, it starts in the top left corner: new token i stands at position "
            "n_cached + i.",
            lambda n, c: ~_chunk(n, c, 0),
        ),
        (
            "Your new tokens do not see themselves. They do: the comparison is <= and not <.",
            lambda n, c: _chunk(n, c, c - 1),
        ),
        (
            "Your mask looks ahead: each new token sees one token behind itself. The last key for "
            "new token i is n_cached + i.",
            lambda n, c: _chunk(n, c, c + 1),
        ),
        (
            "You shifted the triangle by n_new. It is the cached keys that stand in front: shift "
            "it by n_cached.",
            lambda n, c: _chunk(n, c, n),
        ),
        (
            "You shifted the wrong way, by -n_cached. The new tokens stand behind the cached ones "
            "and see them: shift by n_cached.",
            lambda n, c: _chunk(n, c, -c),
        ),
        (
            "Your mask is square and holds the new tokens only. The cached keys need columns too: "
            "n_cached of them, in front.",
            lambda n, c: _triangle(n),
        ),
        (
            "Your mask is square, n_new by n_new, and shifting its triangle makes no room for the "
            "cached keys. They need columns too: (n_new, n_cached + n_new).",
            lambda n, c: np.tri(n, n, c, dtype=bool),
        ),
        (
            "Your mask shows the new tokens to themselves and to those before them: it hides the "
            "past and shows the future. Turn the comparison round.",
            lambda n, c: np.triu(np.ones((n, c + n), bool), c),
        ),
        (
            "Your mask has a row for every token, the cached ones too. Only the new ones ask: its "
            "last n_new rows are what you need.",
            lambda n, c: _triangle(c + n),
        ),
        (
            "You cut rows with [-n_cached:]. The new tokens are the last n_new rows: [-n_new:], or "
            "[n_cached:].",
            lambda n, c: _triangle(c + n)[-c:],
        ),
        (
            "You hid the cached tokens. They came before all the new ones, which see every one of "
            "them.",
            _cached_and(_triangle, cached=np.zeros),
        ),
        (
            "You put the new tokens' columns first. Cached keys stand first, new ones behind them.",
            lambda n, c: chunk_mask(n, c)[:, np.r_[c : c + n, :c]],
        ),
        (
            "Your mask allows everything. Among the new tokens the order still counts: one must "
            "not see those behind it.",
            _cached_and(lambda n: np.ones((n, n), bool)),
        ),
        (
            "Each of your new tokens sees the cache and itself, but not the new ones before it.",
            _cached_and(lambda n: np.eye(n, dtype=bool)),
        ),
        (
            "Your new tokens see the cache and nothing new. They see the new ones before them, and "
            "themselves.",
            _cached_and(lambda n: np.zeros((n, n), bool)),
        ),
        (
            "Your mask has columns for the cached keys only. The new tokens' keys are there as "
            "well: n_cached + n_new columns.",
            lambda n, c: np.ones((n, c), bool),
        ),
        (
            "Your triangle is the upper one: new tokens see those behind them and not those "
            "before. Take the lower one.",
            _cached_and(lambda n: _triangle(n).T),
        ),
        (
            "Your mask is transposed: rows are the new tokens, columns are keys, (n_new, n_cached "
            "+ n_new).",
            lambda n, c: chunk_mask(n, c).T,
        ),
        (
            "You swapped n_new and n_cached. Rows are the new tokens.",
            lambda n, c: chunk_mask(c, n),
        ),
        (
            "You took n_cached for all keys. It counts those that were there before; the new ones "
            "come on top, n_cached + n_new.",
            lambda n, c: np.tri(n, c, c - n, dtype=bool),
        ),
        (NUMBERS, lambda n, c: chunk_mask(n, c) * 1.0),
        (ADDITIVE, lambda n, c: np.where(chunk_mask(n, c), 0.0, -np.inf)),
        (
            ADDITIVE + " And new token i stands at position n_cached + i: yours starts in the top "
            "left corner.",
            lambda n, c: np.where(_chunk(n, c, 0), 0.0, -np.inf),
        ),
    ),
    hints=(
        "Number all tokens from 0, the cached ones first. At which number does new token i stand, "
        "and up to which number may it look?",
        "`n_cached + np.arange(n_new)` says where the new tokens stand. Give them an axis of their "
        "own with `[:, None]`, and compare `np.arange(n_cached + n_new)` with them: <= gives the "
        "mask.",
    ),
)


def cache_bytes(num_layers, num_heads, num_kv_heads, d_k, tokens, batch, bytes_per_number):
    """Bytes of all the keys and values that a model keeps while it writes."""
    numbers_per_token = num_layers * 2 * num_kv_heads * d_k  # a key and a value; num_heads is out
    return batch * tokens * numbers_per_token * bytes_per_number


def _cache_bytes_cases():
    return [
        (3, 2, 1, 5, 7, 1, 2),
        (3, 10, 5, 7, 11, 2, 4),
        (2, 12, 3, 5, 13, 7, 2),
        (30, 9, 3, 64, 2000, 1, 4),  # SmolLM2-135M in float32
        (32, 32, 32, 128, 4096, 1, 2),  # LLaMA-2 7B
        (80, 64, 8, 128, 4096, 1, 2),  # LLaMA-2 70B
        (80, 64, 8, 128, 4096, 16, 1),
        (96, 96, 96, 128, 2048, 3, 2),  # GPT-3
    ]


def _cache_bytes_random(rng):
    layers, group, num_kv_heads, d_k, tokens, batch = unequal(rng, 6)
    return (
        layers,
        group * num_kv_heads,
        num_kv_heads,
        d_k,
        tokens,
        batch,
        int(rng.choice([1, 2, 4])),
    )


# By what the answer is too large, as people count it; the common slips first.
FACTORS = {
    "You counted the num_heads query heads. What is cached are the heads of keys and values, "
    "num_kv_heads.": lambda layers, h, h_kv, d, t, batch, b: Fraction(h, h_kv),
    "You counted keys or values. Both are kept: twice as many numbers.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(1, 2)
    ),
    "You counted one layer. Each of the num_layers layers has a cache of its own.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(1, layers)
    ),
    "You counted one sequence. Each of the batch has a cache of its own.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(1, batch)
    ),
    "You counted numbers. Each takes bytes_per_number bytes.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(1, b)
    ),
    "You squared tokens. A token adds one key and one value a head, whatever came before it: what "
    "is quadratic are the scores, and they are not kept.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(t)
    ),
}
RARE_FACTORS = {
    "You counted a third array, as wide as the keys. Queries are not cached: each is used in its "
    "own step and never again.": lambda layers, h, h_kv, d, t, batch, b: Fraction(3, 2),
    "You counted the queries as well. They are not cached: each is used in its own step and never "
    "again.": lambda layers, h, h_kv, d, t, batch, b: Fraction(2 * h_kv + h, 2 * h_kv),
    "You counted the weights as well, tokens * tokens for each query head. They are used and "
    "thrown away.": lambda layers, h, h_kv, d, t, batch, b: 1 + Fraction(h * t, 2 * h_kv * d),
    "You added up what the cache holds at every step. Each step keeps what was there, so the cache "
    "holds tokens rows in the end, not the sum 1 + 2 + ... + tokens.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(t + 1, 2)
    ),
    "You counted one key-value head. There are num_kv_heads in each layer.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(1, h_kv)
    ),
    "You multiplied by num_heads and by num_kv_heads. The cache holds num_kv_heads heads; how many "
    "query heads read them costs no room.": lambda layers, h, h_kv, d, t, batch, b: Fraction(h),
    "You counted num_heads / num_kv_heads heads. That is how many query heads share one; the cache "
    "holds num_kv_heads.": lambda layers, h, h_kv, d, t, batch, b: Fraction(h, h_kv**2),
    "You divided d_k by num_heads. It is the width of one head already.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(1, h)
    ),
    "You divided d_k by num_heads, and rounded down. It is the width of one head already.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(d // h, d)
    ),
    "You left out d_k. A key is d_k numbers wide, and a value too.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(1, d)
    ),
    "You counted the cache of one token. There are so many as tokens says.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(1, t)
    ),
    "You counted one token less. All the tokens given are in the cache, the last too.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(t - 1, t)
    ),
    "You counted one token more than are in the cache.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(t + 1, t)
    ),
    "You doubled twice. Two arrays are kept, keys and values, each of num_kv_heads * d_k numbers "
    "a token.": lambda layers, h, h_kv, d, t, batch, b: Fraction(2),
    "You counted bits. The argument is in bytes already.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(8)
    ),
    "You divided by bytes_per_number. Each number takes so many bytes: multiply.": (
        lambda layers, h, h_kv, d, t, batch, b: Fraction(1, b**2)
    ),
    "Your answer is in KiB, 2**10 bytes. Bytes are asked for.": lambda *_: Fraction(1, 2**10),
    "Your answer is in MiB, 2**20 bytes. Bytes are asked for.": lambda *_: Fraction(1, 2**20),
    "Your answer is in GiB, 2**30 bytes. Bytes are asked for.": lambda *_: Fraction(1, 2**30),
    "Your answer is in GB, 10**9 bytes. Bytes are asked for.": lambda *_: Fraction(1, 10**9),
}


def _too_large(*factors):
    """The right number times all these factors."""

    def faulty(*sizes):
        number = cache_bytes(*sizes)
        for factor in factors:
            number *= factor(*sizes)
        return int(number) if number == int(number) else float(number)

    return faulty


def _cache_bytes_faults():
    for sentence, factor in (FACTORS | RARE_FACTORS).items():
        yield sentence, _too_large(factor)
    common = list(FACTORS)
    for i, first in enumerate(common):
        for second in common[:i]:
            yield _joined(second, first), _too_large(FACTORS[first], FACTORS[second])


CACHE_BYTES = Exercise(
    teaches="the cache grows with tokens, sequences and key-value heads, not with query heads",
    task=(
        "How many bytes does the cache of a model take, when each sequence of a batch has tokens "
        "tokens in it? The model has num_layers layers, each with num_heads query heads and "
        "num_kv_heads heads of keys and of values, all of width d_k. Every number takes "
        "bytes_per_number bytes. Return a whole number."
    ),
    difficulty=1,
    minutes=5,
    cases=_cache_bytes_cases,
    random_case=_cache_bytes_random,
    solution=cache_bytes,
    faults=tuple(_cache_bytes_faults()),
    hints=(
        "What does one token leave in one layer for later tokens to look at? Count its numbers; "
        "one of the arguments is not needed.",
        "A token leaves a key and a value for each key-value head of each layer: that is "
        "`2 * num_kv_heads * d_k` numbers a layer. Multiply by layers, tokens, sequences and "
        "bytes.",
    ),
)


def grouped_heads(query, key, value):
    """Attention in which groups of query heads share a head of keys and values."""
    group = len(query) // len(key)  # query heads for each key-value head
    key, value = (np.repeat(x, group, axis=0) for x in (key, value))  # 0, 0, ..., 1, 1, ...
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])  # (num_heads, n_q, n_kv)
    return scratch.softmax(scores) @ value


def _grouped_case(rng, num_heads, num_kv_heads, n_q, n_kv, d_k, d_v):
    query = draw(rng, num_heads, n_q, d_k)
    return query, draw(rng, num_kv_heads, n_kv, d_k), draw(rng, num_kv_heads, n_kv, d_v)


def _grouped_heads_cases():
    rng = np.random.default_rng(22)
    return [
        (np.zeros((2, 1, 1)), np.zeros((1, 2, 1)), np.array([[[10.0], [20.0]]])),
        (np.zeros((4, 1, 1)), np.zeros((2, 1, 1)), np.array([[[10.0]], [[20.0]]])),
        _grouped_case(rng, 3, 3, 1, 2, 2, 3),
        _grouped_case(rng, 4, 2, 2, 3, 2, 1),
        _grouped_case(rng, 6, 2, 2, 3, 4, 3),
        _grouped_case(rng, 6, 3, 4, 5, 3, 2),
        _grouped_case(rng, 8, 2, 5, 4, 3, 6),
    ]


def _grouped_heads_random(rng):
    group, num_kv_heads, *sizes = unequal(rng, 6)
    return _grouped_case(rng, group * num_kv_heads, num_kv_heads, *sizes)


def _read(index):
    """Keys, or values, of the key-value head index(num_heads, num_kv_heads) for each query head."""
    return lambda x, num_heads: x[index(num_heads, len(x))]


TILED = (
    "You tiled the key-value heads, 0, 1, 0, 1, so that neighbours read different ones. Head i "
    "reads i // group, 0, 0, 1, 1: np.repeat, not np.tile, and // instead of %."
)
_repeated = _read(lambda h, h_kv: np.arange(h) // (h // h_kv))
_tiled = _read(lambda h, h_kv: np.arange(h) % h_kv)
# What each query head reads, from keys or values and the number of query heads.
READ = {
    "": _repeated,
    TILED: _tiled,
    "All your query heads read the first key-value head. Each group has its own.": (
        _read(lambda h, h_kv: np.zeros(h, int))
    ),
    "You averaged the key-value heads, and all query heads read the mean. Each group reads its "
    "own head.": lambda x, h: np.repeat(x.mean(axis=0, keepdims=True), h, axis=0),
    "Your groups stand in reverse. The first query heads read key-value head 0.": (
        _read(lambda h, h_kv: (np.arange(h) // (h // h_kv))[::-1])
    ),
    "All your query heads read the last key-value head. Each group has its own.": (
        _read(lambda h, h_kv: np.full(h, h_kv - 1))
    ),
    "You divided i by num_kv_heads. A group has num_heads / num_kv_heads query heads: divide by "
    "that, or the last heads read what is not there.": (
        _read(lambda h, h_kv: np.arange(h) // h_kv)
    ),
    "You took the remainder of i by the size of a group. The number of the group is the quotient, "
    "i // group.": _read(lambda h, h_kv: np.arange(h) % (h // h_kv)),
    "Your query head i reads key-value head i, and those left over all read the last. The groups "
    "are equal: i // group.": _read(lambda h, h_kv: np.minimum(np.arange(h), h_kv - 1)),
    "Your groups are shifted by one query head. Head 0 is the first of group 0.": (
        _read(lambda h, h_kv: np.roll(np.arange(h) // (h // h_kv), 1))
    ),
    "You added up the key-value heads, and all query heads read the sum. Each group reads its own "
    "head.": lambda x, h: np.repeat(x.sum(axis=0, keepdims=True), h, axis=0),
    "All your query heads read every key-value head, as if their tokens stood in one row. Each "
    "group reads its own head.": lambda x, h: np.repeat(x.reshape(1, -1, x.shape[-1]), h, axis=0),
}


def _causal(scores):
    mask = np.tri(*scores.shape[-2:], scores.shape[-1] - scores.shape[-2], dtype=bool)
    return softmax(np.where(mask, scores, -1e30))


ATTEND = {
    "": attention,
    "You left out the scale: divide the scores by the square root of d_k.": (
        attention_scaled(lambda q, k, v: 1)
    ),
    "You scaled by the values' width. It is queries and keys that the scores are made of: divide "
    "by the square root of d_k.": attention_scaled(lambda q, k, v: v.shape[-1] ** 0.5),
    "Your softmax ran over the queries (axis -2). It belongs on the last axis, the keys.": (
        attention_weighted(softmax_over(-2))
    ),
    "Your softmax ran over the heads. It belongs on the last axis, the keys.": (
        attention_weighted(softmax_over(0))
    ),
    "You divided the scores by d_k. Divide by its square root.": (
        attention_scaled(lambda q, k, v: q.shape[-1])
    ),
    "You multiplied the scores by the square root of d_k. Divide by it.": (
        attention_scaled(lambda q, k, v: q.shape[-1] ** -0.5)
    ),
    "You scaled by the width of all the heads together. Each head's scores are sums over its own "
    "d_k features: divide by the square root of d_k.": (
        attention_scaled(lambda q, k, v: (len(q) * q.shape[-1]) ** 0.5)
    ),
    "You scaled by the number of keys. Divide the scores by the square root of d_k.": (
        attention_scaled(lambda q, k, v: k.shape[-2] ** 0.5)
    ),
    "The softmax is missing: you mixed the values by the scores.": attention_weighted(lambda s: s),
    "You mixed the values by exp(scores) and did not divide by their sum.": (
        attention_weighted(np.exp)
    ),
    "You laid a causal mask over the scores. None is asked for.": attention_weighted(_causal),
}


def _grouped(attend, read_key, read_value=None):
    """Attention whose query heads read what read(keys or values, num_heads) gives them."""

    def faulty(query, key, value):
        h = len(query)
        return attend(query, read_key(key, h), (read_value or read_key)(value, h))

    return faulty


def _repeated_numbers(x, num_heads):
    """Every number of the heads, not every head, as often as a group is large."""
    return np.repeat(x, num_heads // len(x)).reshape(num_heads, *x.shape[1:])


def _mean_of_groups(x, num_kv_heads):
    """The mean over each group of heads, (num_kv_heads, n, d)."""
    return x.reshape(num_kv_heads, -1, *x.shape[1:]).mean(axis=1)


def _grouped_faults():
    for r, a in _one_or_two(READ, ATTEND):
        yield _joined(r, a), _grouped(ATTEND[a], READ[r])


GROUPED_HEADS = Exercise(
    teaches="neighbouring query heads share keys and values, each with a pattern of its own",
    task=(
        "query has shape (num_heads, n_q, d_k), key (num_kv_heads, n_kv, d_k) and value "
        "(num_kv_heads, n_kv, d_v), and num_kv_heads divides num_heads. Query head i reads "
        "key-value head i // (num_heads / num_kv_heads), so neighbouring query heads share one. "
        "Compute softmax attention in each query head, with the usual scale and without a mask, "
        "and return its output, (num_heads, n_q, d_v). scratch.softmax will do for the softmax."
    ),
    difficulty=2,
    minutes=10,
    cases=_grouped_heads_cases,
    random_case=_grouped_heads_random,
    solution=grouped_heads,
    faults=(
        *_grouped_faults(),
        (
            "Your keys are in the right order, but your values are tiled, 0, 1, 0, 1. Repeat both "
            "in the same way.",
            _grouped(attention, _repeated, _tiled),
        ),
        (
            "Your values are in the right order, but your keys are tiled, 0, 1, 0, 1. Repeat both "
            "in the same way.",
            _grouped(attention, _tiled, _repeated),
        ),
        (
            "Key and value have num_kv_heads heads, and NumPy does not share them out among more "
            "query heads, except a single one. Repeat each for its group first.",
            attention,
        ),
        (
            "You repeated each head num_kv_heads times. A head serves a group, num_heads / "
            "num_kv_heads query heads: repeat it as often.",
            lambda q, k, v: attention(q, *(np.repeat(x, len(x), axis=0) for x in (k, v))),
        ),
        (
            "np.repeat without axis flattens the array and repeats every number, and a reshape "
            "does not bring the heads back. Repeat whole heads: axis=0.",
            _grouped(attention, _repeated_numbers),
        ),
        (
            "You mixed the queries of a group into one. The heads of a group share keys and "
            "values, but each has a query of its own, and an output.",
            lambda q, k, v: attention(_mean_of_groups(q, len(k)), k, v),
        ),
        (
            "You averaged the outputs of a group. Every query head has an output of its own, "
            "num_heads of them.",
            lambda q, k, v: _mean_of_groups(grouped_heads(q, k, v), len(k)),
        ),
        (
            "Your groups attend rightly, but their outputs stand in another order: swapped axes "
            "make head 0 of every group come first. Query head i's output is number i.",
            lambda q, k, v: (
                grouped_heads(q, k, v)
                .reshape(len(k), -1, q.shape[1], v.shape[2])
                .swapaxes(0, 1)
                .reshape(len(q), q.shape[1], v.shape[2])
            ),
        ),
    ),
    hints=(
        "With 4 query heads and 2 key-value heads, write down for each query head which one it "
        "reads. Which NumPy function turns 0, 1 into that list?",
        "`np.repeat(key, group, axis=0)` gives 0, 0, 1, 1, where group is num_heads over "
        "num_kv_heads, the first sizes of query and key (`//` keeps it whole). The same for value, "
        "and then attention as always, with `key.swapaxes(-1, -2)`.",
    ),
)


def accept(length, draft, chosen):
    """The new length of the cache: of the draft it keeps the beginning that the model chose too."""
    agreed = np.cumprod(draft == chosen)  # 1 up to the first difference, 0 from there on
    return length + int(agreed.sum())


def _accept_cases():
    cases = [
        (4, [7], [9]),
        (4, [7], [7]),
        (9, [3, 1], [3, 5]),
        (10, [3, 1, 4], [3, 1, 4]),
        (10, [3, 1, 4], [3, 8, 4]),
        (6, [2, 7, 1, 8], [7, 1, 8, 2]),
        (20, [5, 9, 2, 6, 5], [5, 9, 2, 1, 5]),
        (7, [1, 4, 1, 4, 2, 1], [4, 1, 4, 1, 2, 1]),
        (1500, [28, 260, 28, 3, 411, 12, 9, 9], [28, 260, 28, 3, 9, 12, 9, 30]),
    ]
    return [(length, np.array(draft), np.array(chosen)) for length, draft, chosen in cases]


def _accept_random(rng):
    length, m = unequal(rng, 2, lowest=3)
    draft = rng.integers(6, size=m)
    return length, draft, np.where(rng.random(m) < 0.75, draft, rng.integers(6, size=m))


def _prefix(agrees):
    """How many stand before the first that does not agree."""
    return int(np.cumprod(agrees).sum())


def _agreed(draft, chosen):
    return _prefix(draft == chosen)


def _longest_run(draft, chosen):
    longest = run = 0
    for same in draft == chosen:
        run = run + 1 if same else 0
        longest = max(longest, run)
    return longest


# How many tokens of the draft are kept, as people count them.
KEEP = {
    "": _agreed,
    "You counted all places where draft and chosen agree. Behind the first difference the model "
    "answered to a text that is not written, so nothing there counts.": (
        lambda draft, chosen: int((draft == chosen).sum())
    ),
    "You kept the first token that was rejected as well. Its key and value are the wrong token's, "
    "and those of the chosen one are not in the cache yet.": (
        lambda draft, chosen: min(_agreed(draft, chosen) + 1, len(draft))
    ),
    "You counted one more than agree, for the token that the model chose itself. It is written, "
    "but its key and value are not in the cache: that comes with the next step.": (
        lambda draft, chosen: _agreed(draft, chosen) + 1
    ),
    "You dropped the whole draft for one difference. What stands before it was accepted.": (
        lambda draft, chosen: len(draft) * bool((draft == chosen).all())
    ),
    "You kept the whole draft. What stands from the first difference on is dropped.": (
        lambda draft, chosen: len(draft)
    ),
    "You kept nothing of the draft. Its beginning, as long as draft and chosen agree, was what the "
    "model would have written.": lambda draft, chosen: 0,
    "You dropped the last token that agrees, too. Everything before the first difference stays.": (
        lambda draft, chosen: max(_agreed(draft, chosen) - 1, 0)
    ),
    "You kept one token less than agree.": lambda draft, chosen: _agreed(draft, chosen) - 1,
    "np.argmax and np.argmin give 0 where there is no difference, and you keep nothing of a draft "
    "that is right to the end. Then all of it stays.": (
        lambda draft, chosen: int(np.argmax(draft != chosen))
    ),
    "You cut behind the last place where draft and chosen agree. Cut at the first where they do "
    "not.": lambda draft, chosen: int(max(np.flatnonzero(draft == chosen) + 1, default=0)),
    "You cut at the last difference. Cut at the first.": (
        lambda draft, chosen: int(max(np.flatnonzero(draft != chosen), default=len(draft)))
    ),
    "You counted the agreement from the end. The draft was written from its beginning: once a "
    "token is wrong, so is all that follows.": (
        lambda draft, chosen: _prefix((draft == chosen)[::-1])
    ),
    "You took the longest run in which draft and chosen agree. Only one at the beginning counts.": (
        _longest_run
    ),
    "You compared chosen[i] with draft[i + 1]. chosen[i] is what the model writes after "
    "draft[:i], so it stands at the place of draft[i].": (
        lambda draft, chosen: _prefix(chosen[:-1] == draft[1:])
    ),
    "You compared draft[i] with chosen[i + 1]. chosen[i] is what the model writes after "
    "draft[:i], so it stands at the place of draft[i].": (
        lambda draft, chosen: _prefix(draft[:-1] == chosen[1:])
    ),
    "You asked if a token of the draft is anywhere in chosen. It has to be at the same place.": (
        lambda draft, chosen: int(np.isin(draft, chosen).sum())
    ),
    "You kept as many as were rejected. Keep those that agree, up to the first difference.": (
        lambda draft, chosen: len(draft) - _agreed(draft, chosen)
    ),
    "You counted the differences. Count what agrees, up to the first of them.": (
        lambda draft, chosen: int((draft != chosen).sum())
    ),
    "You kept what differs, up to the first place where draft and chosen agree. It is the other "
    "way round.": lambda draft, chosen: _prefix(draft != chosen),
}
BEGIN = {
    "": lambda length, m, kept: length + kept,
    "You forgot what was in the cache before: the new length is length and what was accepted.": (
        lambda length, m, kept: kept
    ),
    "You took length to count the draft already. It is what was there before: add the accepted "
    "tokens, rather than to take the rejected ones away.": (
        lambda length, m, kept: length - m + kept
    ),
    "You took the accepted tokens away from length. They stay, behind what was there: add them.": (
        lambda length, m, kept: length - kept
    ),
}


def _accepted(keep, begin):
    return lambda length, draft, chosen: begin(length, len(draft), keep(draft, chosen))


def _without_an_end(length, draft, chosen):
    kept = 0
    while draft[kept] == chosen[kept]:
        kept += 1
    return length + kept


def _first_that_may_not_be(length, draft, chosen):
    return length + np.flatnonzero(draft != chosen)[0]


def _accept_faults():
    for k, b in _one_or_two(KEEP, BEGIN):
        yield _joined(k, b), _accepted(KEEP[k], BEGIN[b])


ACCEPT = Exercise(
    teaches="a rejected draft is taken back by cutting the cache, at the first difference",
    task=(
        "A cache with room to spare held length tokens. A small model then proposed a draft of m "
        "more, and their keys and values were written behind them, in rows length to "
        "length + m - 1. draft (m,) are the numbers of these tokens, and chosen (m,) those that "
        "the large model would have written: chosen[i] after the earlier text and draft[:i]. "
        "Return the new length of the cache, a whole number: all the draft's tokens before the "
        "first that the large model did not choose stay, and nothing behind them. The token that "
        "it chose in that place has no key and value yet: they come with the next step."
    ),
    difficulty=2,
    minutes=8,
    cases=_accept_cases,
    random_case=_accept_random,
    solution=accept,
    faults=(
        *_accept_faults(),
        (
            "Your loop runs off the end of a draft that is right throughout. It stops there too, "
            "and all of the draft stays.",
            _without_an_end,
        ),
        (
            "You took the first difference without asking if there is one. A draft that is right "
            "throughout has none, and all of it stays.",
            _first_that_may_not_be,
        ),
    ),
    hints=(
        "Why does a token that agrees no longer count once one before it was wrong? So how many "
        "of the draft stay, if draft and chosen differ at place 0? And if they never differ?",
        "`draft == chosen` says where they agree. `np.cumprod` of it is 1 up to the first "
        "difference and 0 from there on, so its sum is the number that stays; a loop with a "
        "break does it too. Add length.",
    ),
)

EXERCISES = (CACHED_STEP, CHUNK_MASK, CACHE_BYTES, GROUPED_HEADS, ACCEPT)
