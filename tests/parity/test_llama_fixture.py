"""The Llama architecture against numbers of the public implementation, as a checkpoint folder that a user would bring: config.json
in both spellings, weights in one file or several, rows padded on the right."""

import json
import shutil

import numpy
import pytest
from conftest import Program, losses, read_safetensors, table, write_safetensors, write_tokens
from fixture_runs import FIXTURES, RUNS, Fixture, exported

ARCHITECTURE = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim")


class Case(Fixture):
    def __init__(self, folder, name="tiny-llama"):
        super().__init__(name)
        self.facts |= {"batch": self.facts["rows"], "parameters": self.facts["parameters_trainable"]}
        # Any preset of the workload: the checkpoint's config.json says what the model is.
        self.preset, self.program, self.weights = "lm10m-tiny", Program(folder), folder / "checkpoint"
        self.weights.mkdir()
        for file in ("config.json", "model.safetensors"):
            shutil.copy(FIXTURES / "tiny-llama" / file, self.weights)
        labels = self.tensors["labels"].copy()
        labels[:, 0] = -100  # never a target; data files say so
        write_tokens(folder / "data.h5", self.tensors["input_ids"], labels, lengths=self.tensors["attention_mask"].sum(axis=1))
        o = self.facts["optimiser"]
        self.sets = (f"data.path={folder / 'data.h5'}", f"data.sequence_length={self.facts['sequence_length']}",
                     f"optimizer.lr={o['lr']}", f"optimizer.weight_decay={o['weight_decay']}", f"optimizer.clip_norm={o['clip_norm']}",
                     "optimizer.decay=all")

    def train(self, ranks, technique, *sets, weights=None, **how):
        return super().train(ranks, technique, f"model.checkpoint={weights or self.weights}", *sets, **how)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return Case(tmp_path_factory.mktemp("llama"))


class LoraCase(Case):
    """Adapters on the same model, as a folder of the public library; B is not zero."""

    def __init__(self, folder):
        super().__init__(folder, "tiny-llama-lora")
        self.adapter = self.folder

    def train(self, ranks, technique, *sets, adapter=None, **how):
        return super().train(ranks, technique, f"model.lora.checkpoint={adapter or self.adapter}", *sets, **how)


@pytest.fixture(scope="module")
def lora(tmp_path_factory):
    return LoraCase(tmp_path_factory.mktemp("lora"))


def expect_trajectory_and_gradients(case, ranks, technique):
    """Returns the record."""
    gradients = case.program.folder / "gradients"
    path = case.train(ranks, technique, f"output.gradients={gradients}")
    case.expect_trajectory(path)
    case.expect_gradients(read_safetensors(gradients / "gradients.safetensors"))
    return path


@pytest.mark.parametrize("ranks,technique", RUNS)
def test_adapters_trajectory_and_gradients(lora, ranks, technique):
    path = expect_trajectory_and_gradients(lora, ranks, technique)
    summary = table(path, "summary").iloc[0]
    assert (summary.parameters, summary.trainable_parameters) == (145_472, 9_984)


@pytest.mark.parametrize("ranks, technique", [(2, "ddp"), (3, "zero2"), (2, "fsdp")])
def test_adapters_with_accumulation_and_recomputation(lora, ranks, technique):
    lora.expect_trajectory(lora.train(ranks, technique, "data.accumulation=2", "model.activation_checkpointing=true"))


@pytest.mark.parametrize("technique", ["ddp", "fsdp"])
def test_exported_adapters_are_a_folder_of_the_public_library(lora, technique):
    out = lora.program.folder / f"adapter-{technique}"
    lora.train(3, technique, f"checkpoint.export={out}", steps=6)
    found = read_safetensors(out / "adapter_model.safetensors")
    lora.expect_final_weights(found)
    assert sorted(file.name for file in out.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    given = json.loads((lora.folder / "adapter_config.json").read_text())
    written = json.loads((out / "adapter_config.json").read_text())
    for name in ("peft_type", "r", "lora_alpha", "lora_dropout", "target_modules", "bias", "task_type"):
        assert written[name] == given[name], name
    path = lora.train(2, technique, adapter=out, steps=1)
    lora.expect_loss(path, lora.facts["trajectory_loss"][6], lora.tolerances["loss_rel_by_step"][6])


def test_new_adapters_add_nothing_at_first(case, lora):
    """B starts as zero: the first loss is that of the model alone, and A has no gradient yet."""
    gradients = lora.program.folder / "new"
    path = case.train(2, "ddp", "model.lora.rank=3", "model.lora.targets=q_proj,down_proj", f"output.gradients={gradients}", steps=1)
    case.expect_loss(path, case.facts["trajectory_loss"][0], case.tolerances["loss_rel_by_step"][0])
    found = read_safetensors(gradients / "gradients.safetensors")
    assert len(found) == 8 and all((".lora_B." in name) == value.any() for name, value in found.items())


def test_dropout_before_adapters_does_not_depend_on_ranks(lora):
    sets = ("model.lora.rank=4", "model.lora.dropout=0.3")
    def run(ranks, technique, *more):
        return losses(Case.train(lora, ranks, technique, *sets, *more))
    alone = run(1, "single")
    rows = run(1, "single", "data.accumulation=12")
    bound = numpy.maximum(20 * numpy.maximum.accumulate(abs(rows / alone - 1)), 2e-6)
    assert (abs(run(3, "fsdp", "model.activation_checkpointing=true") / alone - 1) <= bound).all()
    assert (abs(losses(Case.train(lora, 1, "single", "model.lora.rank=4")) / alone - 1)[1:] > bound[1:]).any()


@pytest.mark.parametrize("change, said", [({"use_dora": True}, "use_dora = true: not built here"), ({"r": 5}, "lora_A.weight"),
                                          ({"target_modules": ["q_proj"]}, "k_proj.lora_A.weight is not one"),
                                          ({"target_modules": ["qkv"]}, "no projection"), ({"rank_pattern": {"q_proj": 2}}, "rank_pattern")])
def test_adapters_that_are_not_built_are_refused(lora, change, said):
    folder = lora.program.folder / "wrong"
    shutil.copytree(lora.folder, folder, dirs_exist_ok=True)
    entries = json.loads((lora.folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(entries | change))
    done = lora.program.alone("run", "lm10m-tiny", "--technique", "single", "--set", f"model.checkpoint={lora.weights}",
                              "--set", f"model.lora.checkpoint={folder}")
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize("ranks,technique", RUNS)
def test_trajectory_and_gradients(case, ranks, technique):
    expect_trajectory_and_gradients(case, ranks, technique)


@pytest.mark.parametrize("ranks, technique", [(1, "single"), (2, "ddp"), (3, "zero1"), (2, "zero2"), (3, "zero3"), (2, "fsdp")])
def test_accumulation_and_recomputation_change_no_trajectory(case, ranks, technique):
    case.expect_trajectory(case.train(ranks, technique, "data.accumulation=2", "model.activation_checkpointing=true"))


@pytest.mark.parametrize("technique", ["ddp", "fsdp"])
def test_final_weights(case, technique):
    out = case.program.folder / f"weights-{technique}"
    case.train(3, technique, f"checkpoint.export={out}", steps=6)
    case.expect_final_weights(exported(out))
    entries = json.loads((out / "config.json").read_text())
    assert entries.pop("torch_dtype") == "float32" and entries.items() <= json.loads((case.weights / "config.json").read_text()).items()
    # What was exported is a checkpoint again: the next step starts where the last one ended.
    path = case.train(2, technique, weights=out, steps=1)
    case.expect_loss(path, case.facts["trajectory_loss"][6], case.tolerances["loss_rel_by_step"][6])


def split(weights, folder):
    """The same tensors in two files and an index; the tied head once more."""
    tensors = read_safetensors(weights / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    for file, held in parts.items():
        write_safetensors(folder / file, {name: tensors[name] for name in held})
    index = {"metadata": {}, "weight_map": {name: file for file, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_other_spelling_and_several_files(case):
    folder = case.program.folder / "sharded"
    folder.mkdir()
    split(case.weights, folder)
    shutil.copy(case.folder / "config.other_style.json", folder / "config.json")
    case.expect_trajectory(case.train(2, "zero3", weights=folder))


def test_a_tied_head_that_differs_is_refused(case):
    folder = case.program.folder / "untied"
    folder.mkdir()
    split(case.weights, folder)
    shutil.copy(case.folder / "config.json", folder)
    tensors = read_safetensors(folder / "model-00001-of-00002.safetensors")
    tensors["lm_head.weight"] = numpy.nextafter(tensors["lm_head.weight"], numpy.float32(9))
    write_safetensors(folder / "model-00001-of-00002.safetensors", tensors)
    done = case.program.alone("run", "lm10m-tiny", "--technique", "single", "--set", f"model.checkpoint={folder}")
    assert done.returncode == 2 and "lm_head.weight are one in this model and differ" in done.stderr, done.stderr
    entries = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(entries | {"tie_word_embeddings": False}))
    assert case.train(1, "single", weights=folder, steps=1).exists()


@pytest.mark.parametrize("change, said", [({"vocab_size": 500}, "model.embed_tokens.weight"), ({"sliding_window": 8}, "sliding_window"),
                                          ({"num_hidden_layers": 3}, "model.layers.2."), ({"num_hidden_layers": 1}, "model.layers.1.")])
def test_a_config_that_is_not_the_weights(case, change, said):
    folder = case.program.folder / "wrong"
    shutil.copytree(case.weights, folder, dirs_exist_ok=True)
    entries = json.loads((case.weights / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(entries | change))
    done = case.program.alone("run", "lm10m-tiny", "--technique", "single", "--set", f"model.checkpoint={folder}")
    assert done.returncode == 2 and said in done.stderr, done.stderr
