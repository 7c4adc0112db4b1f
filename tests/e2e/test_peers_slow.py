"""Every peer on language model and perceptrons, DeepSpeed where it is installed, torchrun, and the measuring script."""

import csv
import subprocess
import sys

import pytest
from conftest import table
from peers import PEERS, SGD, Case, peer_python

CASES = {"digits": ("mlp-digits", ()), "lm": ("lm10m-tiny", ()), "lm-sgd": ("lm10m-tiny", SGD), "mlp": ("mlp", ()),
         "transformer": ("transformer10m-tiny", SGD), "towers": ("two-tower-tiny", SGD)}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    made = {}

    def case(name):
        if name not in made:
            made[name] = Case(tmp_path_factory.mktemp(name), *CASES[name])
        return made[name]
    return case


@pytest.mark.parametrize("name, technique", [("digits", "fsdp"), ("lm", "ddp"), ("lm", "fsdp"), ("lm-sgd", "ddp"), ("mlp", "ddp"),
                                             ("transformer", "ddp"), ("transformer", "fsdp"), ("towers", "ddp"), ("towers", "fsdp")])
def test_torch_gives_our_losses(cases, name, technique):
    case = cases(name)
    case.expect_same_losses(case.train_peer(technique))


@pytest.mark.parametrize("technique", ["zero1", "zero2", "zero3"])
@pytest.mark.parametrize("name", ["lm", "lm-sgd", "digits", "transformer", "towers"])
def test_deepspeed_gives_our_losses(cases, name, technique):
    python = peer_python("--deepspeed")
    case = cases(name)
    path = case.train_peer(technique, python=python)
    case.expect_same_losses(path)
    assert "deepspeed" in table(path, "config_keys").set_index("key").value[b"peer"].decode()


def test_torchrun_starts_it_too(cases):
    case, (executable, _) = cases("digits"), peer_python()
    launcher = [executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29611"]
    path = case.train_peer("ddp", launcher=launcher)
    case.expect_same_losses(path)
    assert table(path, "ranks")["rank"].tolist() == [0, 1]


def test_what_it_cannot_train_is_refused_with_a_remedy(cases):
    case = cases("digits")
    for change, said in (("data.path=", "scripts/prepare_data.py"), ("data.accumulation=2", "one micro-step"),
                         ("model.width=63", "the model needs"), ("model.nothing=1", "model.nothing")):
        key, kept = change.partition("=")[0], case.sets
        case.sets = [*(one for one in kept if not one.startswith(f"{key}=")), change]
        code, errors, _ = case.start_peer("ddp")
        case.sets = kept
        assert code == 2 and said in errors, errors


def test_transfer_of_both_sides(cases):
    case = cases("lm")
    ours = [case.program.train(2, case.preset, f"ours-{technique}", *case.sets, f"technique.profile={profile}", technique=technique)
            for technique, profile in (("ddp", "native"), ("fsdp", "fsdp2"))]
    theirs = [case.train_peer(technique) for technique in ("ddp", "fsdp")]
    done = case.program.alone("compare", "--transfer", *ours, *theirs, "--format", "csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["technique"] for row in rows] == ["ddp", "fsdp"] and rows[1]["peer"].endswith("FSDP2")
    nothing = case.program.alone("compare", "--transfer", *ours)
    assert nothing.returncode == 2 and "make peers" in nothing.stderr


def test_measuring_script_works_from_end_to_end(tmp_path):
    peer_python()
    done = subprocess.run([sys.executable, PEERS / "measure.py", "--quick", "--cells", "lm10m-tiny:ddp,lm10m-tiny:fsdp",
                           "-o", tmp_path / "out.csv", "--records", tmp_path / "both"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert [row["technique"] for row in rows] == ["ddp", "fsdp"]
    for row in rows:
        assert row["losses"] == "agree" and float(row["ratio"]) > 0 and float(row["limit_ms"]) > 0
        assert float(row["ours_resident_mib"]) > 0 and float(row["peer_resident_mib"]) > 0
    assert "cores" in lines[0] and "mean nothing" in lines[2]
    names = sorted(path.name for path in (tmp_path / "both").iterdir())
    assert names == [f"round0-lm10m-tiny-{technique}-{side}.h5" for technique in ("ddp", "fsdp") for side in ("ours", "peer")]


def test_detector_gives_torchvisions_losses(tmp_path):
    peer_python("--torchvision")
    done = subprocess.run([sys.executable, PEERS / "measure.py", "--quick", "--cells", "retinanet-mini:ddp,retinanet-mini:fsdp",
                           "-o", tmp_path / "out.csv"], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(line for line in (tmp_path / "out.csv").read_text().splitlines() if not line.startswith("#")))
    assert [(row["technique"], row["losses"]) for row in rows] == [("ddp", "agree"), ("fsdp", "agree")]


def test_setup_names_unknown_options():
    done = subprocess.run([PEERS / "setup.sh", "--torch"], capture_output=True, text=True)
    assert done.returncode == 2 and "--torchvision" in done.stderr
