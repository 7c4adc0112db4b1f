"""A peer trains what we train: same losses, and a record that our commands read. test_peers_slow.py has the rest."""

import json

import h5py
import numpy
import pytest
from conftest import attribute, table
from peers import SGD, Case


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    # Enough decay to show in five losses.
    return Case(tmp_path_factory.mktemp("digits"), "mlp-digits", ("optimizer.weight_decay=1.0",))


@pytest.fixture(scope="module")
def ours(digits):
    return digits.program.train(2, "mlp-digits", "ours", *digits.sets)


@pytest.fixture(scope="module")
def peer(digits):
    return digits.train_peer("ddp")


def test_ddp_gives_our_losses(digits, peer):
    digits.expect_same_losses(peer)


def expect_same_rows(ours, peer):
    columns = ["step", "rank", "block", "timed", "samples", "tokens", "padded_tokens", "applied", "lr"]
    mine, theirs = (table(path, "steps").sort_values(["step", "rank"])[columns].to_numpy() for path in (ours, peer))
    assert (mine == theirs).all()


def test_fsdp_gives_our_losses_under_sgd(tmp_path):
    """Adam hides a gradient's scale; SGD does not."""
    case = Case(tmp_path, "lm10m-tiny", SGD)
    peer = case.train_peer("fsdp")
    case.expect_same_losses(peer)
    expect_same_rows(case.program.train(2, case.preset, "ours", *case.sets), peer)
    assert sorted(path.name for path in tmp_path.glob("peer*")) == ["peer-fsdp.h5"], "nothing else is left behind"


def test_compare_puts_both_side_by_side(digits, ours, peer):
    done = digits.program.alone("compare", ours, peer, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert rows[0]["peer"] == "" and rows[1]["peer"].startswith("torch ") and rows[1]["peer"].endswith(" DDP")
    assert rows[1]["ratio"] == pytest.approx(rows[1]["samples_per_s"] / rows[0]["samples_per_s"])
    assert rows[1]["checks"] == "2/2" and rows[1]["preset"] == "mlp-digits"


def test_a_refused_peer_leaves_the_record_and_no_other_file(digits, peer):
    old = peer.read_bytes()
    code, errors, path = digits.start_peer("ddp", overwrite=False)
    assert path == peer and code == 2 and "exists: choose another name" in errors, errors
    assert peer.read_bytes() == old and [one.name for one in peer.parent.glob("peer-ddp*")] == [peer.name]


def test_show_reads_it(digits, peer):
    done = digits.program.alone("show", peer)
    assert done.returncode == 0 and "replicas_equal" in done.stdout and "host_rss" in done.stdout, done.stderr


def test_record_has_our_tables_columns_and_units(ours, peer):
    with h5py.File(ours) as mine, h5py.File(peer) as theirs:
        assert set(mine) == set(theirs) and set(mine.attrs) | {"peer"} == set(theirs.attrs)
        for name in set(mine) - {"config"}:
            assert mine[name].dtype == theirs[name].dtype, name
            assert {key: bytes(value) for key, value in mine[name].attrs.items()} == \
                {key: bytes(value) for key, value in theirs[name].attrs.items()}, name


def test_same_rows_are_trained(ours, peer):
    for path in (ours, peer):
        assert table(path, "steps").sort_values(["step", "rank"]).samples.tolist()[:6] == [64] * 4 + [44, 0], "fillers count nothing"
    expect_same_rows(ours, peer)


def test_summary_follows_our_formulas(ours, peer):
    """Our own steps give our own summary, so the formulas are the same; the peer's summary is that of its steps."""
    import record
    for path in (ours, peer):
        with h5py.File(path) as file:
            steps, summary = file["steps"][:], file["summary"][0]
        for name, value in record.summarise(steps, 2, warmed_up=True, passed=True).items():
            assert numpy.isclose(summary[name], value, rtol=1e-12), name
    assert attribute(peer, "status") == "complete" and table(peer, "summary").parameters[0] == table(ours, "summary").parameters[0]
