"""A key-value cache: what a layer computed for earlier tokens, kept for the tokens to come.

Under a causal mask a token's key and value do not change when tokens are added after it, so each is
computed once. Sources: Shazeer 2019, "Fast Transformer Decoding" (what decoding costs); Pope et al.
2022, "Efficiently Scaling Transformer Inference" (the cache and its size).
"""

import torch

from mha_lib import masks, validate
from mha_lib.pytorch.attention import is_ordinary
from mha_lib.pytorch.grouped import attend_in_groups


def cached_attention(
    query,
    key,
    value,
    cache,
    mask=None,
    bias=None,
    *,
    lengths=None,
    causal=False,
    scale=None,
    dropout_p=0.0,
    need_weights=False,
    ordinary=None,
):
    """Append the new tokens' keys and values; attend from their queries to all that is kept.

    query is (..., num_heads, n, d_k), key and value (..., num_kv_heads, n, d), of n new tokens; a
    frozen cache is only read, and takes None for both. ``mask`` and ``bias`` broadcast to
    (..., num_heads, n, cache.n_kv(n)). Of sample b the first ``lengths[b]`` tokens are real: those
    after them are not kept and see nothing. ``ordinary`` is is_ordinary of all that is new,
    from a caller who knows. Returns (..., num_heads, n, d_v) and weights or None.
    """
    if cache.frozen:
        keys, values = cache.keys, cache.values
    else:
        rule = cache.rule(query.shape[-2], lengths, causal=causal, device=query.device)
        keys, values = cache.append(key, value, lengths, ordinary=ordinary or None)
        if rule is not None:
            mask, causal = rule if mask is None else mask & rule, False
    if query.requires_grad and not (keys.requires_grad or values.requires_grad):
        keys, values = keys.clone(), values.clone()  # the next token is written into the old ones
    ordinary = is_ordinary(query) if ordinary is None else ordinary
    return attend_in_groups(
        query,
        keys,
        values,
        mask,
        bias,
        causal=causal,
        scale=scale,
        dropout_p=dropout_p,
        need_weights=need_weights,
        ordinary=cache.ordinary and ordinary,
    )


class KeyValueCache:
    """The keys and values of one layer, for one batch of sequences.

    ``capacity`` is the number of tokens that there is room for, taken at once; without it the room
    doubles whenever it is used up. ``window`` makes a rolling cache: a token sees itself and the
    window - 1 before it, and older ones are dropped. The first tokens decide on batch, heads,
    widths, dtype and device.
    ``length`` counts the tokens so far, so that it is the position of the next one; ``lengths``
    counts them for each sample where they differ, and is None where they don't.
    Where gradients flow every ``append`` copies the cache: generate under torch.no_grad().
    ``columns`` keeps the numbers of a feature of the values side by side: in float32 on a CPU a
    single token mixes long texts up to a quarter faster, many tokens at once are slower.

    >>> cache, three, one = KeyValueCache(), torch.ones(1, 2, 3, 4), torch.ones(1, 2, 1, 4)
    >>> keys, values = cache.append(three, three)
    >>> keys, values = cache.append(one, one)
    >>> cache.length, keys.shape
    (4, torch.Size([1, 2, 4, 4]))
    """

    def __init__(self, capacity=None, *, window=None, columns=False):
        for name, number in (("capacity", capacity), ("window", window)):
            if number is not None:
                validate.positive_integer(name, number)
        if capacity is not None and window is not None:
            raise ValueError("capacity must be left out where window is given, which bounds it")
        validate.flag("columns", columns)
        self.capacity, self.window, self.columns = capacity, window, columns
        self.reset()

    def reset(self):
        """Forget every token and give the memory back."""
        self.length, self.lengths = 0, None
        self.frozen = False  # True for a memory that cross-attention reads and nobody adds to
        self.ordinary = True  # no number so far is too large for torch's kernel
        self._rooms = None  # two of (..., num_kv_heads, room, d): zeros where nothing came yet
        self._first = self._stop = 0  # the rows of them that count

    @property
    def keys(self):
        """All keys, (..., num_kv_heads, n_kv, d_k); a view, to be read only."""
        return self._rooms[0].narrow(-2, self._first, self._stop - self._first)

    @property
    def values(self):
        """All values, (..., num_kv_heads, n_kv, d_v); a view, to be read only."""
        return self._rooms[1].narrow(-2, self._first, self._stop - self._first)

    @property
    def nbytes(self):
        """Bytes of memory taken, with the room that is still free."""
        return sum(room.nbytes for room in self._rooms or ())

    def n_kv(self, n, lengths=None):
        """How many keys the next n tokens will see at most, themselves included."""
        return self._stop if self.frozen else self._rows_after(n, self._after(n, lengths))

    def positions(self, n, device=None):
        """Positions of the next n tokens: (n,), or (batch, n) where samples differ in length."""
        start = self.length if self.lengths is None else _column(self.lengths, device)
        return torch.arange(n, device=device) + start

    def append(self, key, value, lengths=None, *, ordinary=None):
        """Keep new tokens, (..., num_kv_heads, n, d); return ``keys`` and ``values`` to attend to.

        A rolling cache returns the last window - 1 tokens and the new ones. Of sample b the first
        ``lengths[b]`` tokens are kept. Each sample's rows start at 0; rows beyond its own number of
        tokens mean nothing, and ``rule`` hides them. ``ordinary`` is is_ordinary(key, value), for a
        caller who knows.
        Raises ValueError or TypeError, and keeps nothing, if the cache is full or does not fit.
        """
        self._check(key, value, lengths)
        n = key.shape[-2]
        after = self._after(n, lengths)
        n_kv = self._rows_after(n, after)
        self._check_capacity(n_kv)
        if self.window is not None:
            self._first = self._stop - (n_kv - n)
        self._make_room(key, value, n_kv)
        for room, new in zip(self._rooms, (key, value)):
            if lengths is None and self.lengths is None:
                room.narrow(-2, self._stop, n).copy_(new)
            else:
                self._write_each(room, new, after)
        if n and self.ordinary:
            self.ordinary = is_ordinary(key, value) if ordinary is None else ordinary
        self._stop = self._first + n_kv
        self._set_lengths(after)
        return self.keys, self.values

    def truncate(self, length):
        """Keep the first ``length`` tokens of every sample, or ``length[b]`` of sample b.

        What follows a shared beginning goes this way, and the tokens of a rejected draft.
        Raises ValueError for more tokens than there are, or if a rolling cache dropped some.
        """
        if self.window is not None and self.length > self.window:
            raise ValueError(
                "truncate needs every token, but the rolling cache has dropped "
                f"{self.length - self.window} of {self.length}"
            )
        after = self._each(length)
        for asked, there in zip(after, self._starts(len(after))):
            if asked > there:
                raise ValueError(f"length must lie between 0 and {there}, got {asked}")
        self._set_lengths(after)
        self._stop = self.length

    def rule(self, n, lengths=None, *, causal, device=None):
        """What the next n tokens may see, (n, n_kv) or (batch, 1, n, n_kv), True = may attend.

        None where ``causal`` says it all: samples of one length, and no window that hides any.
        """
        if self.window is not None:
            return self._rule_of_window(n, causal, device)
        if lengths is None and self.lengths is None:
            return None
        after = self._after(n, lengths)
        starts = self._starts(len(after))
        counts = [stop - start for start, stop in zip(starts, after)]
        start, count = (_column(x, device)[..., None, None] for x in (starts, counts))
        row = torch.arange(n, device=device)[:, None]
        slot = torch.arange(max(after), device=device)
        last = start + row if causal else start + count - 1  # (batch, 1, n or 1, 1)
        return (row < count) & (slot <= last)

    def _rule_of_window(self, n, causal, device):
        if not causal:
            raise ValueError("causal must be True with a rolling cache, which looks back only")
        if n == 1:  # one token sees everything that is kept
            return None
        return masks.sliding_window(n, self.n_kv(n), window=self.window, device=device)

    def _starts(self, batch):
        return self.lengths or [self.length] * batch

    def _after(self, n, lengths):
        """The length of each sample once n tokens came, or one number where all are the same."""
        if lengths is None:
            return [start + n for start in self.lengths or [self.length]]
        lengths = _whole_numbers("lengths", lengths)
        return [start + new for start, new in zip(self._starts(len(lengths)), lengths)]

    def _rows_after(self, n, after):
        """How many rows are attended to once n tokens came and the lengths are ``after``."""
        if self.window is not None:
            return min(self.length, self.window - 1) + n
        return max(after, default=0)

    def _each(self, length):
        """A list of a number for each sample, or of one number for all of the same length."""
        if not hasattr(length, "__len__"):
            validate.count("length", length)
            return [length] * len(self._starts(1))
        each, batch = _whole_numbers("length", length), self._rooms and self._rooms[0].shape[:-3]
        if not batch or (len(each),) != tuple(batch):
            raise ValueError(f"length must have one number a sample, got {each} for batch {batch}")
        return each

    def _set_lengths(self, lengths):
        self.length = max(lengths, default=0)
        self.lengths = lengths if len(set(lengths)) > 1 else None

    def _make_room(self, key, value, n_kv):
        """Room for n_kv rows from ``_first`` on, in tensors that may be written to."""
        if self._rooms is None:
            self._rooms = self._zeros(key, value, self.capacity or n_kv)
        elif self._first + n_kv > self._rooms[0].shape[-2]:
            self._move(n_kv)
        elif any(x.requires_grad for x in (key, value, *self._rooms)):
            self._rooms = [room.clone() for room in self._rooms]  # backward needs the old ones

    def _move(self, n_kv):
        """The rows that count go to the start of larger rooms, or of rooms for two windows."""
        old, rows = (self.keys, self.values), self._stop - self._first
        double = 2 * (self.window or self._rooms[0].shape[-2])
        self._rooms = self._zeros(*old, max(double, n_kv))
        for room, kept in zip(self._rooms, old):
            room.narrow(-2, 0, rows).copy_(kept)
        self._first, self._stop = 0, rows

    def _zeros(self, key, value, size):
        """Room for so many keys and values: zeros, since memory as it comes may hold NaN."""
        *batch, _, d_v = value.shape
        keys = key.new_zeros(*batch, size, key.shape[-1])
        if self.columns:
            return [keys, value.new_zeros(*batch, d_v, size).mT]
        return [keys, value.new_zeros(*batch, size, d_v)]

    def _write_each(self, room, new, after):
        """Each sample's new rows behind its own last one."""
        for b, (start, stop) in enumerate(zip(self._starts(len(after)), after)):
            room[b, :, start:stop] = new[b, :, : stop - start]

    def _check(self, key, value, lengths):
        if self.frozen:
            raise ValueError("cache must not be frozen to take tokens, got one that holds a memory")
        if self._rooms is None:
            _check_first(key, value)
        else:
            for name, new, room in zip(("key", "value"), (key, value), self._rooms):
                _check_fits(name, new, room, key.shape[-2])
        if lengths is not None:
            _check_lengths(lengths, key.shape[:-3], key.shape[-2])
            if self.window is not None:
                raise ValueError("lengths must be left out with a rolling cache, got some")

    def _check_capacity(self, n_kv):
        if self.capacity is not None and n_kv > self.capacity:
            raise ValueError(
                f"cache is full: it has room for capacity = {self.capacity} tokens and holds "
                f"{self.length}, got {n_kv - self.length} more"
            )


def without_padding(x, lengths):
    """x (batch, n, d) with zeros for what follows the first ``lengths[b]`` tokens of sample b.

    NaN there would reach the gradients of the weights as 0 * NaN.
    """
    _check_lengths(lengths, x.shape[:-2], x.shape[-2])
    n = torch.arange(x.shape[-2], device=x.device)
    real = n < _column(_whole_numbers("lengths", lengths), x.device)  # (batch, n)
    return x.masked_fill(~real[..., None], 0)


def _check_lengths(lengths, batch_axes, n):
    numbers = _whole_numbers("lengths", lengths)
    if (len(numbers),) != tuple(batch_axes) or max(numbers, default=0) > n:
        raise ValueError(
            f"lengths must hold a number from 0 to {n} for each sample of one batch axis, "
            f"got {numbers} for a batch {tuple(batch_axes)}"
        )


def _column(numbers, device):
    return torch.tensor(numbers, device=device)[:, None]


def _whole_numbers(name, numbers):
    """A list of whole numbers, from a list, an array or a tensor of them."""
    numbers = list(numbers.tolist() if hasattr(numbers, "tolist") else numbers)
    for number in numbers:
        validate.count(name, number)
    return numbers


def _check_first(key, value):
    """Refuse the first rows if they cannot be keys and values of the same tokens."""
    validate.floats(torch.Tensor, key=key, value=value)
    if key.ndim < 3 or key.shape[:-1] != value.shape[:-1]:
        raise ValueError(
            "key and value must be (..., num_kv_heads, n, d) and differ in d only, "
            f"got shapes {tuple(key.shape)} and {tuple(value.shape)}"
        )


def _check_fits(name, new, room, n):
    """Refuse rows that differ from those in the cache in kind, place or shape."""
    if new.dtype != room.dtype:
        kinds = validate.dtype_name(room), validate.dtype_name(new)
        raise TypeError(f"{name} must have the cache's dtype {kinds[0]}, got {kinds[1]}")
    if new.device != room.device:
        raise ValueError(f"{name} must be on the cache's device {room.device}, got {new.device}")
    shape = (*room.shape[:-2], n, room.shape[-1])
    if new.shape != shape:
        raise ValueError(
            f"{name} must fit what is in the cache, shape {tuple(shape)}, got {tuple(new.shape)}"
        )
