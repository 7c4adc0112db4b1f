#!/usr/bin/env python3
"""One rank of a peer: trains a shardmark preset by PyTorch DDP, FSDP2 or DeepSpeed ZeRO and writes a record that shardmark reads.

  scripts/launch.sh 2 python scripts/peers/train.py mlp-digits --technique ddp -o peer.h5 --set data.path=data/digits.h5
  torchrun --nproc-per-node 2 scripts/peers/train.py ...

Technique names are shardmark's: ddp, fsdp (FSDP2), zero1, zero2, zero3 (DeepSpeed). NCCL where torch sees a GPU for every rank
of the node, else gloo; one thread a rank computes. Data, order of rows, settings and, with model.checkpoint, initial weights are
shardmark's; dropout masks are torch's own. What is not measured is missing in the record: collectives, gradient norm, FLOPs.
Losses are summed over ranks at block borders, outside the timed steps: a peer's step holds only what its technique needs.

Exit codes: 0 done, 2 bad settings or data, 5 torch or DeepSpeed is missing, 8 wrong result (replicas differ, loss not finite).
"""

import argparse
import datetime
import hashlib
import math
import os
import pathlib
import platform
import resource
import socket
import sys
import time

START_S = time.monotonic()
MIN_WARMUP_STEPS = 3  # as shardmark: fewer give no throughput


def rank_of_launcher():
    """(rank, size, rank on the node, ranks on the node) from torchrun or Open MPI; one rank without a launcher."""
    names = (("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
             tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")))
    for group in names:
        if group[0] in os.environ and group[1] in os.environ:
            rank, size = int(os.environ[group[0]]), int(os.environ[group[1]])
            return rank, size, int(os.environ.get(group[2], rank)), int(os.environ.get(group[3], size))
    return 0, 1, 0, 1


def join_world(arguments, torch, place):
    """Initialises torch.distributed; returns the device and the file through which ranks met, "" if torchrun brought them
    together."""
    rank, size, local_rank, local_size = place
    use_cuda = torch.cuda.is_available() and torch.cuda.device_count() >= local_size
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if rank == 0 and torch.cuda.is_available() and not use_cuda:
        print(f"train.py: {torch.cuda.device_count()} GPU(s) for {local_size} ranks of the node: training on the CPU", file=sys.stderr)
    if use_cuda:
        torch.cuda.set_device(device)
    elif local_size == size:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all on this machine
    # DeepSpeed and FSDP2 ask these of torchrun.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(local_rank))
    if "MASTER_ADDR" in os.environ:
        os.environ.setdefault("MASTER_PORT", "29500")
        meeting, place_of_meeting = "env://", ""
    else:
        # A name that no other job has: Open MPI's name of this one.
        job = os.environ.get("PMIX_NAMESPACE") or os.environ.get("OMPI_MCA_ess_base_jobid") or str(os.getpid())
        place_of_meeting = f"{pathlib.Path(arguments.output).resolve()}.{job.replace('/', '_')}.meet"
        meeting = f"file://{place_of_meeting}"
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29500")
    torch.distributed.init_process_group("nccl" if use_cuda else "gloo", init_method=meeting, rank=rank, world_size=size,
                                         timeout=datetime.timedelta(minutes=10))
    return device, place_of_meeting


def agree(torch, rank, work):
    """Rank 0's result on all ranks; its DataProblem is raised on all of them."""
    from problem import DataProblem
    box = [None]
    if rank == 0:
        try:
            box = [(work(), None)]
        except DataProblem as problem:
            box = [(None, str(problem))]
    torch.distributed.broadcast_object_list(box, src=0)
    result, problem = box[0]
    if problem:
        raise DataProblem(problem)
    return result


class Loop:
    """The timed loop: warm-up, blocks, barrier at block borders only, total_s since the end of the step before."""

    def __init__(self, torch, config, technique, rows, place, device, batch):
        self.torch, self.config, self.technique, self.rows, self.device = torch, config, technique, rows, device
        self.rank, self.size = place[:2]
        measure = config["measure"]
        self.num_steps = measure["warmup_steps"] + measure["steps"] * measure["blocks"]
        self.global_batch, self.micro_batch = batch
        self.plan = rows.plan(self.num_steps, self.global_batch)
        self.targets = [rows.count_targets(step) for step in self.plan]
        self.steps, self.losses, self.block_losses = [], [], []
        self.block_start, self.block_first = 0.0, 0

    def run(self):
        from models import loss_sum
        measure, clock = self.config["measure"], time.monotonic
        share = slice(self.rank * self.micro_batch, (self.rank + 1) * self.micro_batch)
        end = self.block_start = clock()
        for step in range(self.num_steps):
            timed_step = step - measure["warmup_steps"]
            if timed_step >= 0 and timed_step % measure["steps"] == 0:
                end = self.end_block()
            start = clock()
            inputs, targets = self.rows.batch(self.plan[step, share], self.device)
            data = clock()
            loss = loss_sum(self.config, self.technique.forward(inputs), targets)
            forward = clock()
            self.technique.backward(loss * (self.size / self.targets[step]))
            backward = clock()
            self.technique.step()
            self.block_losses.append(loss.detach())
            done = clock()
            self.steps.append((max(-1, timed_step // measure["steps"]), step, data - start, forward - data, backward - forward,
                               done - backward, done - end))
            end = done
        self.end_block()
        return self.losses

    def end_block(self):
        torch = self.torch
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            if self.steps:
                # Launching runs ahead of the device: what was left belongs to the block's last step.
                *head, total = self.steps[-1]
                self.steps[-1] = (*head, total + time.monotonic() - self.end_of_last_step())
        if self.block_losses:
            sums = torch.stack(self.block_losses).double()
            torch.distributed.all_reduce(sums)
            first = len(self.losses)
            self.losses += [value / count for value, count in zip(sums.tolist(), self.targets[first:])]
            self.block_losses = []
        torch.distributed.barrier()
        self.block_start = time.monotonic()
        self.block_first = len(self.steps)
        return self.block_start

    def end_of_last_step(self):
        return self.block_start + sum(row[-1] for row in self.steps[self.block_first:])

    def rows_of_rank(self):
        """Rows of /steps of this rank."""
        share = slice(self.rank * self.micro_batch, (self.rank + 1) * self.micro_batch)
        made = []
        for block, step, data_s, forward_s, backward_s, optimizer_s, total_s in self.steps:
            mine = self.plan[step, share]
            samples = int((mine >= 0).sum())
            made.append({"block": block, "step": step, "rank": self.rank, "timed": int(block >= 0), "data_s": data_s,
                         "forward_s": forward_s, "backward_s": backward_s, "optimizer_s": optimizer_s, "total_s": total_s,
                         "loss": self.losses[step], "applied": 1, "lr": self.config["optimizer"]["lr"], "samples": samples,
                         "tokens": self.rows.count_tokens(mine), "padded_tokens": samples * self.rows.length})
        return made


def facts_of_rank(torch, loop, technique, place, device):
    """What rank 0 needs of every rank."""
    from record import cpu_model
    from techniques import replica_hash
    rank, _, local_rank, local_size = place
    # Before anything is copied to be compared. The two counters of the kernel may differ by some pages.
    peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with open("/proc/self/statm") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    on_gpu = device.type == "cuda"
    cores = sorted(os.sched_getaffinity(0))
    return {
        "steps": loop.rows_of_rank(),
        "rank": {"rank": rank, "node": rank // local_size, "node_rank": local_rank, "host": socket.gethostname(), "pid": os.getpid(),
                 "device_name": torch.cuda.get_device_name(device) if on_gpu else cpu_model(),
                 "cpu_set": ",".join(map(str, cores)), "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES", "")},
        "memory": [{"rank": rank, "phase": "run", "category": "host_rss", "current_bytes": resident, "peak_bytes": max(peak_rss, resident)}]
        + ([{"rank": rank, "phase": "run", "category": "total", "current_bytes": torch.cuda.memory_allocated(device),
             "peak_bytes": torch.cuda.max_memory_allocated(device)}] if on_gpu else []),
        "replica": replica_hash(technique) if technique.replicated else None,
        "oversubscribed": int(local_size > len(cores)),
    }


def checks_of(ranks, losses):
    finite = int(all(map(math.isfinite, losses)))
    checks = [{"name": "loss_finite", "expected": 1, "found": finite, "tolerance": 0, "passed": finite}]
    if ranks[0]["replica"] is not None:
        equal = int(len({one["replica"] for one in ranks}) == 1)
        checks.append({"name": "replicas_equal", "expected": 1, "found": equal, "tolerance": 0, "passed": equal})
    return checks


def write(arguments, torch, config, key_rows, config_text, technique, ranks, losses, parameters, init_s, load_s):
    """Rank 0's record; returns whether all checks passed."""
    import record
    checks = checks_of(ranks, losses)
    passed = all(check["passed"] for check in checks)
    steps = sorted((row for one in ranks for row in one["steps"]), key=lambda row: (row["step"], row["rank"]))
    steps = record.make_rows("steps", steps)
    warmed_up = config["measure"]["warmup_steps"] >= MIN_WARMUP_STEPS
    memory = [row for one in ranks for row in one["memory"]]
    totals = [row["peak_bytes"] for row in memory if row["category"] == "total"]
    summary = {**record.summarise(steps, len(ranks), warmed_up, passed), "parameters": parameters,
               "trainable_parameters": parameters, "init_s": init_s, "checkpoint_load_s": load_s,
               "peak_memory_bytes": max(totals, default=-1), "oversubscribed": max(one["oversubscribed"] for one in ranks)}
    key_rows = [*key_rows, {"key": "peer", "value": f'"{technique.name}"', "origin": "scripts/peers/train.py"}]
    created = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config_hash = hashlib.sha256(f"{technique.name}\n{config_text}".encode()).hexdigest()[:16]
    run_id = hashlib.sha256(f"{created} {socket.gethostname()} {os.getpid()} {config_hash}".encode()).hexdigest()[:16]
    attributes = {"schema_version": record.SCHEMA_VERSION, "shardmark_version": "scripts/peers", "commit": "unknown", "dirty": -1,
                  "definition_version": config["definition_version"], "binary_hash": "", "created": created,
                  "status": "complete" if passed else "failed", "exit_code": 0 if passed else 8,
                  "error": "" if passed else "checks failed: " + ", ".join(c["name"] for c in checks if not c["passed"]),
                  "workload": config["workload"]["name"], "preset": config_text.splitlines()[0].removeprefix("# preset "), "technique": config["technique"]["name"],
                  "world_size": len(ranks), "config_hash": config_hash, "run_id": run_id, "suite_id": "", "case_id": "",
                  "repeat": 0, "job_id": os.environ.get("SLURM_JOB_ID", ""), "attempt": 0, "peer": technique.name}
    facts = {"peer": technique.name, "torch": torch.__version__, "backend": torch.distributed.get_backend(),
             "device": "cpu" if not totals else "cuda", "data": config["data"]["path"],
             "python": platform.python_version(), "kernel": f"{platform.system()} {platform.release()}"}
    if not totals:
        facts["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "")
    record.write_record(arguments.output, attributes, config_text + f'\n[peer]\nname = "{technique.name}"\n', {
        "config_keys": key_rows, "ranks": [one["rank"] for one in ranks], "steps": steps, "memory": memory, "checks": checks,
        "environment": [{"name": name, "value": value} for name, value in facts.items()], "summary": [summary]})
    print(f"{technique.name}: step {summary.get('step_time_median_s', float('nan')) * 1e3:.4g} ms, loss {losses[0]:.6g} -> "
          f"{losses[-1]:.6g}, record {arguments.output}", file=sys.stderr)
    return passed


def train(arguments, torch, place):
    device, place_of_meeting = join_world(arguments, torch, place)
    try:
        return train_in_world(arguments, torch, place, device)
    finally:  # a refusal leaves nothing behind either
        if place[0] == 0 and place_of_meeting:
            pathlib.Path(place_of_meeting).unlink(missing_ok=True)


def train_in_world(arguments, torch, place, device):
    import settings
    import weights
    from models import make_model
    from problem import DataProblem
    from rows import open_rows
    from techniques import TECHNIQUES
    rank, size = place[:2]
    text = agree(torch, rank, lambda: settings.ask_program(arguments.case, arguments.technique, arguments.set))
    config, key_rows, config_text = settings.parse(text)
    agree(torch, rank, lambda: settings.check_output(arguments.output, config))
    batch = settings.check(config, size)
    rows = open_rows(config)
    torch.manual_seed(config["numerics"]["seed"])
    model = make_model(config, rows)
    start = time.monotonic()
    folder = config["model"]["checkpoint"]
    if folder:
        weights.load(model, folder)
    load_s = time.monotonic() - start if folder else float("nan")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    technique = TECHNIQUES[arguments.technique](config, model.to(device), device, batch[1])
    loop = Loop(torch, config, technique, rows, place, device, batch)
    torch.distributed.barrier()
    init_s = time.monotonic() - START_S
    losses = loop.run()
    ranks = [None] * size
    torch.distributed.all_gather_object(ranks, facts_of_rank(torch, loop, technique, place, device))

    def close():
        try:
            return write(arguments, torch, config, key_rows, config_text, technique, ranks, losses, parameters, init_s, load_s)
        except OSError as error:
            raise DataProblem(f"{arguments.output} cannot be written: {error}") from error
    passed = agree(torch, rank, close)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return 0 if passed else 8


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", metavar="PRESET", help="preset or FILE.toml of shardmark")
    parser.add_argument("--technique", required=True, choices=("ddp", "fsdp", "zero1", "zero2", "zero3"))
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="as for shardmark run")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.h5")
    arguments = parser.parse_args()
    place = rank_of_launcher()
    on_deepspeed = arguments.technique.startswith("zero")
    try:
        import torch
        if on_deepspeed:
            import importlib.util
            if importlib.util.find_spec("deepspeed") is None:
                raise ImportError("no module named deepspeed")
    except ImportError as error:
        if place[0] == 0:
            print(f"train.py: {error}; scripts/peers/setup.sh{' --deepspeed' if on_deepspeed else ''} names a Python that has it and what to "
                  "set for it", file=sys.stderr)
        return 5
    folder = pathlib.Path(arguments.output).resolve().parent
    if not folder.is_dir():  # ranks meet there, so every rank looks
        if place[0] == 0:
            print(f"train.py: -o {arguments.output}: the folder {folder} does not exist", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    from problem import DataProblem
    try:
        return train(arguments, torch, place)
    except DataProblem as problem:
        if place[0] == 0:
            print(f"train.py: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without destructors: FSDP2 over gloo leaves threads behind that abort the process when they are torn down.
    os._exit(code)
