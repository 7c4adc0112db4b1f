"""A record of schema version 1 as shardmark reads it (src/record/rows.hpp names every column), and the summary of its steps.

Tests hold the columns to a record of shardmark's own, and `summarise` to the summary that stands in it.
"""

import os
import pathlib
import platform

import h5py
import numpy

SCHEMA_VERSION = 1
CHUNK_ROWS = 64

# Column types: i int64, f float64, a number of bytes for a text. Units stand beside the data, as attributes.
TABLES = {
    "config_keys": [("key", 48, ""), ("value", 256, ""), ("origin", 96, "")],
    "ranks": [("rank", "i", "1"), ("node", "i", "1"), ("node_rank", "i", "1"), ("host", 64, ""), ("pid", "i", "1"),
              ("device_name", 64, ""), ("uuid", 48, ""), ("pci", 24, ""), ("cpu_set", 64, ""), ("numa_node", "i", "1"),
              ("visible_devices", 64, "")],
    "environment": [("name", 64, ""), ("value", 256, "")],
    "steps": [("block", "i", "1"), ("step", "i", "1"), ("rank", "i", "1"), ("timed", "i", "1"), ("data_s", "f", "s"),
              ("forward_s", "f", "s"), ("backward_s", "f", "s"), ("comm_exposed_s", "f", "s"), ("optimizer_s", "f", "s"),
              ("total_s", "f", "s"), ("loss", "f", "1"), ("grad_norm", "f", "1"), ("applied", "i", "1"), ("lr", "f", "1"),
              ("samples", "i", "1"), ("tokens", "i", "1"), ("padded_tokens", "i", "1"), ("peak_bytes", "i", "bytes"),
              ("energy_j", "f", "J")],
    "memory": [("rank", "i", "1"), ("phase", 16, ""), ("category", 24, ""), ("current_bytes", "i", "bytes"),
               ("peak_bytes", "i", "bytes"), ("at_run_peak_bytes", "i", "bytes"), ("predicted_bytes", "i", "bytes")],
    "collectives": [("rank", "i", "1"), ("operation", 24, ""), ("purpose", 16, ""), ("group", 16, ""), ("dtype", 8, ""),
                    ("message_bytes", "i", "bytes"), ("count", "i", "1"), ("wire_bytes", "f", "bytes"), ("total_s", "f", "s"),
                    ("exposed_s", "f", "s"), ("min_s", "f", "s"), ("median_s", "f", "s"), ("max_s", "f", "s")],
    "evaluations": [("steps", "i", "1"), ("quality", "f", "1"), ("time_s", "f", "s"), ("duration_s", "f", "s")],
    "checks": [("name", 64, ""), ("expected", "f", "1"), ("found", "f", "1"), ("tolerance", "f", "1"), ("passed", "i", "1")],
    "summary": [("parameters", "i", "1"), ("trainable_parameters", "i", "1"), ("padding_elements", "i", "1"),
                ("trainable_padding_elements", "i", "1"), ("step_time_median_s", "f", "s"), ("step_time_p95_s", "f", "s"),
                ("step_time_cv", "f", "1"), ("samples_per_s", "f", "1/s"), ("tokens_per_s", "f", "1/s"),
                ("samples_per_s_per_gpu", "f", "1/s"), ("tokens_per_s_per_gpu", "f", "1/s"), ("flops_per_step_model", "f", "1"),
                ("flops_per_step_hardware", "f", "1"), ("peak_flops", "f", "1/s"), ("peak_source", 64, ""), ("mfu", "f", "1"),
                ("peak_memory_bytes", "i", "bytes"), ("wire_bytes_per_step", "f", "bytes"), ("comm_exposed_fraction", "f", "1"),
                ("energy_j_per_step", "f", "J"), ("loss_first", "f", "1"), ("loss_final", "f", "1"), ("quality_name", 32, ""),
                ("quality_value", "f", "1"),
                ("quality_best", "f", "1"), ("quality_best_steps", "i", "1"), ("steps_to_target", "i", "1"),
                ("time_to_target_s", "f", "s"), ("throughput_low", "f", "1/s"), ("throughput_high", "f", "1/s"), ("init_s", "f", "s"),
                ("first_step_s", "f", "s"), ("steps_applied", "i", "1"), ("steps_skipped", "i", "1"),
                ("checkpoint_save_s", "f", "s"), ("checkpoint_load_s", "f", "s"), ("checkpoint_bytes", "i", "bytes"),
                ("warmed_up", "i", "1"), ("steady", "i", "1"), ("oversubscribed", "i", "1")],
    "telemetry": [("rank", "i", "1"), ("time_s", "f", "s"), ("power_w", "f", "W"), ("clock_mhz", "f", "MHz"),
                  ("temperature_c", "f", "C"), ("throttle", "i", "1")],
    "health": [("rank", "i", "1"), ("counter", 48, ""), ("before", "i", "1"), ("after", "i", "1")],
    "transport": [("rank", "i", "1"), ("peer", "i", "1"), ("path", 16, "")],
    "trace": [("rank", "i", "1"), ("lane", 16, ""), ("category", 16, ""), ("name", 48, ""), ("purpose", 16, ""), ("group", 16, ""),
              ("dtype", 8, ""), ("step", "i", "1"), ("tag", "i", "1"), ("sequence", "i", "1"), ("bytes", "i", "bytes"),
              ("start_s", "f", "s"), ("duration_s", "f", "s")],
    "trace_ranks": [("rank", "i", "1"), ("num_events", "i", "1"), ("num_dropped", "i", "1"), ("clock_offset_s", "f", "s"),
                    ("clock_uncertainty_s", "f", "s")],
    "comm": [("operation", 24, ""), ("group", 48, ""), ("backend", 8, ""), ("ranks", "i", "1"), ("dtype", 8, ""),
             ("reduction", 8, ""), ("sum_order", 8, ""), ("in_place", "i", "1"), ("message_bytes", "i", "bytes"),
             ("count", "i", "1"), ("iterations", "i", "1"), ("time_p50_s", "f", "s"), ("time_p99_s", "f", "s"),
             ("time_min_s", "f", "s"), ("time_mean_s", "f", "s"), ("algbw_gb_s", "f", "GB/s"), ("busbw_gb_s", "f", "GB/s"),
             ("wrong", "i", "1")],
}

# Two-sided 97.5 % points of Student's t for 1 to 30 degrees of freedom; the normal's beyond (src/metrics/summary.cpp).
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
             2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


def cpu_model():
    """The processor's name, as /proc/cpuinfo has it."""
    with open("/proc/cpuinfo") as file:
        models = (line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
        return next(models, platform.machine())


def row_type(table):
    kinds = {"i": "<i8", "f": "<f8"}
    return numpy.dtype([(name, kinds.get(kind) or f"S{kind}") for name, kind, _ in TABLES[table]])


def make_rows(table, rows):
    """Rows from dictionaries; what one lacks is missing: -1, NaN, ""."""
    made = numpy.zeros(len(rows), dtype=row_type(table))
    for name, kind, _ in TABLES[table]:
        default = {"i": -1, "f": float("nan")}.get(kind, "")
        values = [row.get(name, default) for row in rows]
        made[name] = values if kind in ("i", "f") else [cut(value, kind - 1) for value in values]
    return made


def cut(text, most_bytes):
    """Cut between characters of UTF-8."""
    return text.encode()[:most_bytes].decode(errors="ignore").encode()


def steady(times):
    third = len(times) // 3
    if third == 0:
        return False
    first, last = numpy.median(times[:third]), numpy.median(times[-third:])
    return abs(last - first) < 0.05 * first


def summarise(steps, world_size, warmed_up, passed):
    """The columns of /summary that follow from rows of /steps, by the formulas of src/metrics/summary.cpp."""
    mine = steps[steps["rank"] == 0]
    timed = steps[steps["timed"] != 0]
    summary = {"warmed_up": int(warmed_up), "steady": 0, "steps_applied": int(mine["applied"].sum()),
               "steps_skipped": int((1 - mine["applied"]).sum()), "loss_first": float(mine["loss"][0]),
               "loss_final": float(mine["loss"][-1]), "first_step_s": float(mine["total_s"][0])}
    if not len(timed):
        return summary
    times = numpy.array([timed["total_s"][timed["step"] == step].max() for step in numpy.unique(timed["step"])])
    spread = times.std(ddof=1) if len(times) > 1 else float("nan")
    summary.update(step_time_median_s=float(numpy.median(times)), step_time_p95_s=float(numpy.quantile(times, 0.95)),
                   step_time_cv=float(spread / times.mean()), steady=int(steady(times)))
    if not (warmed_up and passed):
        return summary
    slowest, samples, tokens = [], [], []
    for block in numpy.unique(timed["block"]):
        rows = timed[timed["block"] == block]
        slowest.append(max(rows["total_s"][rows["rank"] == rank].sum() for rank in numpy.unique(rows["rank"])))
        samples.append(int(rows["samples"].sum()))
        tokens.append(int(rows["tokens"].sum()))
    rate, token_rate = sum(samples) / sum(slowest), sum(tokens) / sum(slowest)
    summary.update(samples_per_s=rate, tokens_per_s=token_rate, samples_per_s_per_gpu=rate / world_size,
                   tokens_per_s_per_gpu=token_rate / world_size)
    if len(slowest) > 1:
        rates = numpy.array(samples) / numpy.array(slowest)
        t = STUDENT_T[len(rates) - 2] if len(rates) - 1 <= len(STUDENT_T) else 1.960
        half = t * rates.std(ddof=1) / len(rates) ** 0.5
        summary.update(throughput_low=max(0.0, rate - half), throughput_high=rate + half)
    return summary


def write_record(path, attributes, config_text, tables):
    """Written aside and renamed: `path` is whole or as it was."""
    path = pathlib.Path(path)
    aside = path.with_name(path.name + ".partial")
    with h5py.File(aside, "w") as file:
        for name, value in attributes.items():
            # A fixed text of at least one byte, which is what the reader takes.
            file.attrs[name] = numpy.int64(value) if isinstance(value, int) else numpy.array(value.encode(), f"S{max(1, len(value.encode()))}")
        file.create_dataset("config", data=numpy.array(config_text.encode(), dtype=f"S{len(config_text.encode())}"))
        for table, columns in TABLES.items():
            rows = tables.get(table, [])
            rows = rows if isinstance(rows, numpy.ndarray) else make_rows(table, rows)
            dataset = file.create_dataset(table, data=rows, chunks=(CHUNK_ROWS,), maxshape=(None,), fletcher32=True)
            for name, _, unit in columns:
                dataset.attrs[name] = numpy.array(unit.encode(), f"S{max(1, len(unit))}")
    with open(aside, "rb") as written:
        os.fsync(written.fileno())
    os.replace(aside, path)
