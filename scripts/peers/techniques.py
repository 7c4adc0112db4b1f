"""The peers: DistributedDataParallel, fully_shard (FSDP2) and DeepSpeed ZeRO, each with its own defaults.

A technique runs one model: forward(inputs), backward(loss), step(). Gradients are averaged over ranks by all of them, so a
loss is the rank's sum over targets x ranks / targets of the global batch.
"""

import hashlib
import os

import torch
from torch.nn.parallel import DistributedDataParallel


def parameter_groups(config, model):
    o = config["optimizer"]
    parameters = list(model.parameters())
    if o["decay"] == "all":
        return [{"params": parameters, "weight_decay": o["weight_decay"]}]
    return [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": o["weight_decay"]},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}]


def make_optimizer(config, model):
    """torch's optimizers as they are by default (neither fused nor capturable)."""
    o, groups = config["optimizer"], parameter_groups(config, model)
    if o["name"] == "sgd":
        return torch.optim.SGD(groups, lr=o["lr"], momentum=o["momentum"])
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[o["name"]]
    return kind(groups, lr=o["lr"], betas=tuple(o["betas"]), eps=o["eps"])


class Ddp:
    replicated = True

    def __init__(self, config, model, device, micro_batch):
        self.name = f"torch {torch.__version__} DDP"
        self.model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
        self.optimizer = make_optimizer(config, model)

    def forward(self, inputs):
        return self.model(inputs)

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def parameters(self):
        return self.model.parameters()


class Fsdp(Ddp):
    replicated = False

    def __init__(self, config, model, device, micro_batch):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        self.name = f"torch {torch.__version__} FSDP2"
        mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
        for block in model.blocks():
            fully_shard(block, mesh=mesh)
        self.model = fully_shard(model, mesh=mesh)
        self.optimizer = make_optimizer(config, model)


class Zero:
    def __init__(self, stage, config, model, device, micro_batch):
        if device.type == "cpu":
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
        import deepspeed
        self.name = f"deepspeed {deepspeed.__version__} ZeRO-{stage}, torch {torch.__version__}"
        self.replicated = stage < 3
        settings = {"train_micro_batch_size_per_gpu": micro_batch, "gradient_accumulation_steps": 1,
                    "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True, "steps_per_print": 10 ** 9,
                    # Its default clips at norm 1, which Adam all but hides: losses of plain SGD show it.
                    "gradient_clipping": config["optimizer"]["clip_norm"]}
        o, optimizer = config["optimizer"], None
        if o["name"] == "sgd":
            optimizer = make_optimizer(config, model)
        else:  # DeepSpeed's own Adam, which it compiles on first use
            settings["optimizer"] = {"type": "Adam", "params": {
                "lr": o["lr"], "betas": o["betas"], "eps": o["eps"], "adam_w_mode": o["name"] == "adamw"}}
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, model_parameters=parameter_groups(config, model),
                                                  config=settings)

    def forward(self, inputs):
        return self.engine(inputs)

    def backward(self, loss):
        self.engine.backward(loss)

    def step(self):
        self.engine.step()

    def parameters(self):
        return self.engine.module.parameters()


TECHNIQUES = {"ddp": Ddp, "fsdp": Fsdp, **{f"zero{stage}": lambda *a, stage=stage: Zero(stage, *a) for stage in (1, 2, 3)}}


def replica_hash(technique):
    digest = hashlib.sha256()
    for parameter in technique.parameters():
        digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
