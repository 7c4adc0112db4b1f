"""The reference models as a PyTorch user would write them: plain torch.nn, the state names of shardmark's exports.

A model maps a batch's inputs to outputs; `loss_sum` is the sum over targets, which the trainer divides by the global count.
Letters: N rows, T positions, C classes or hidden width, V vocabulary.
"""

import torch
from torch import nn
from torch.nn import functional

from problem import DataProblem

IGNORED = -100


class Mlp(nn.Module):
    """Linear, ReLU, Dropout per hidden layer, then one Linear (workloads/mlp.cpp)."""

    def __init__(self, input_width, width, layers, classes, dropout):
        super().__init__()
        widths = [input_width] + [width] * layers
        hidden = [module for before, after in zip(widths, widths[1:])
                  for module in (nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout))]
        self.net = nn.Sequential(*hidden, nn.Linear(widths[-1], classes))

    def forward(self, features):
        return self.net(features)

    def blocks(self):
        """What is sharded together: every Linear, as in shardmark's units."""
        return [module for module in self.net if isinstance(module, nn.Linear)]


def rotate_half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads, head_dim):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.q_proj = nn.Linear(hidden, heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(heads * head_dim, hidden, bias=False)

    def forward(self, x, cos, sin):
        rows, length, _ = x.shape

        def split(projected, heads):
            return projected.view(rows, length, heads, self.head_dim).transpose(1, 2)
        q, k, v = split(self.q_proj(x), self.heads), split(self.k_proj(x), self.kv_heads), split(self.v_proj(x), self.kv_heads)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.o_proj(mixed.transpose(1, 2).reshape(rows, length, -1))


class GatedMlp(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, eps = model["hidden_size"], model["rms_norm_eps"]
        heads = model["num_attention_heads"]
        self.input_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.self_attn = Attention(hidden, heads, model["num_key_value_heads"] or heads, model["head_dim"] or hidden // heads)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.mlp = GatedMlp(hidden, model["intermediate_size"])

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """What transformers calls `model`: embedding, blocks and the last norm."""

    def __init__(self, model):
        super().__init__()
        self.embed_tokens = nn.Embedding(model["vocab_size"], model["hidden_size"])
        self.layers = nn.ModuleList(Block(model) for _ in range(model["num_hidden_layers"]))
        self.norm = nn.RMSNorm(model["hidden_size"], eps=model["rms_norm_eps"])


class LanguageModel(nn.Module):
    """Llama architecture (workloads/lm.cpp). The last position predicts nothing, so it gets no logits."""

    def __init__(self, model, length):
        super().__init__()
        self.model = Decoder(model)
        self.lm_head = nn.Linear(model["hidden_size"], model["vocab_size"], bias=False)
        if model["tie_word_embeddings"]:
            self.lm_head.weight = self.model.embed_tokens.weight
        width = model["head_dim"] or model["hidden_size"] // model["num_attention_heads"]
        frequencies = 1.0 / model["rope_theta"] ** (torch.arange(0, width, 2, dtype=torch.float32) / width)
        angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, input_ids):
        x = self.model.embed_tokens(input_ids)
        for layer in self.model.layers:
            x = layer(x, self.cos, self.sin)
        return self.lm_head(self.model.norm(x)[:, :-1])

    def blocks(self):
        return list(self.model.layers)


class EncoderBlock(nn.Module):
    def __init__(self, width, heads, mlp_width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, mlp_width), nn.GELU(), nn.Linear(mlp_width, width))

    def forward(self, x):
        x = self.norm1(x + self.attention(x, x, x, need_weights=False)[0])
        return self.norm2(x + self.mlp(x))


class VectorTransformer(nn.Module):
    """Post-norm blocks over sequences of length 1 (workloads/transformer.cpp)."""

    def __init__(self, model):
        super().__init__()
        width = model["width"]
        self.input_projection = nn.Linear(model["input_width"], width)
        self.layers = nn.ModuleList(EncoderBlock(width, model["heads"], model["mlp_width"]) for _ in range(model["blocks"]))
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, model["classes"])

    def forward(self, features):
        x = self.input_projection(features).unsqueeze(1)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.norm(x).mean(dim=1))

    def blocks(self):
        return list(self.layers)


class Perceptron(nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self._linear = nn.Linear(width_in, width_out)

    def forward(self, x):
        return functional.relu(self._linear(x))


class TowerMlp(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self._mlp = nn.Sequential(*(Perceptron(before, after) for before, after in zip(widths, widths[1:])))

    def forward(self, x):
        return self._mlp(x)


class TwoTower(nn.Module):
    """Tables, towers, dot product (workloads/two_tower.cpp), under torchrec's names; sum pooling of one id is a look-up."""

    def __init__(self, users, movies, widths):
        super().__init__()
        self.movies = movies
        two_tower = self.two_tower = nn.Module()
        two_tower.ebc = nn.Module()
        two_tower.ebc.embedding_bags = nn.ModuleDict({"t_userId": nn.EmbeddingBag(users, widths[0], mode="sum"),
                                                      "t_movieId": nn.EmbeddingBag(movies, widths[0], mode="sum")})
        two_tower.query_proj, two_tower.candidate_proj = TowerMlp(widths), TowerMlp(widths)

    def forward(self, ids):
        bags = self.two_tower.ebc.embedding_bags
        users = self.two_tower.query_proj(bags["t_userId"](ids[:, :1]))
        movies = self.two_tower.candidate_proj(bags["t_movieId"](ids[:, 1:] % self.movies))
        return (users * movies).sum(dim=1)

    def blocks(self):
        return [*self.two_tower.ebc.embedding_bags.values(), self.two_tower.query_proj, self.two_tower.candidate_proj]


def make_detector(config):
    """torchvision's own RetinaNet v2, as a model of (pictures, targets) whose output is the loss summed over pictures. Resizing
    and normalisation of pictures are part of its forward pass."""
    from torchvision.models.detection import RetinaNet, retinanet_resnet50_fpn_v2

    class Detector(RetinaNet):
        def forward(self, batch):
            pictures, targets = batch
            losses = super().forward(pictures, targets)
            return sum(losses.values()) * len(pictures)

        def blocks(self):
            body = self.backbone.body
            return [*body.layer1, *body.layer2, *body.layer3, *body.layer4, self.backbone.fpn,
                    self.head.classification_head, self.head.regression_head]

    model, data = config["model"], config["data"]
    wanted = {"variant": "v2", "stages": [3, 4, 6, 3], "stem": 64, "fpn": 256, "groups": 32, "batch_norm": "local"}
    problems = [f"model.{name} = {model[name]}: torchvision's has {value}" for name, value in wanted.items() if model[name] != value]
    problems += [f"data.{name} = {data[name]}: peers support 0" for name in ("flip", "pad_to") if data[name]]
    if problems:
        raise DataProblem("; ".join(problems))
    short, long = (int(side) for side in model["sizes"])
    net = retinanet_resnet50_fpn_v2(weights=None, weights_backbone=None, num_classes=model["classes"], min_size=short, max_size=long)
    net.__class__ = Detector  # torchvision's function puts the parts together, the names stay as they are
    return net


def make_model(config, rows):
    model, workload = config["model"], config["workload"]["name"]
    if workload == "retinanet":
        return make_detector(config)
    if workload == "transformer":
        return VectorTransformer(model)
    if workload == "two-tower":
        return TwoTower(model["users"] or rows.num_users, model["movies"] or rows.num_items, [model["width"], *model["layers"]])
    if workload == "mlp":
        return Mlp(model["input_width"], model["width"], model["layers"], model["classes"], model["dropout"])
    return LanguageModel(model, config["data"]["sequence_length"])


def loss_sum(config, outputs, targets):
    """Sum of the losses of all targets; filler rows carry IGNORED or, where targets are real numbers, NaN and count nothing."""
    if config["workload"]["name"] == "retinanet":
        return outputs
    if config["workload"]["name"] == "lm":
        return functional.cross_entropy(outputs.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum")
    if config["workload"]["name"] == "two-tower":
        real = ~targets.isnan()
        if not real.all():
            outputs, targets = outputs[real], targets[real]
        return functional.binary_cross_entropy_with_logits(outputs, targets, reduction="sum")
    if config["model"]["variant"] == "classification":
        return functional.cross_entropy(outputs, targets, ignore_index=IGNORED, reduction="sum")
    if targets.isnan().any():
        real = ~targets.isnan().any(dim=1)
        outputs, targets = outputs[real], targets[real]
    return functional.mse_loss(outputs, targets, reduction="sum")
