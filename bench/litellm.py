"""LiteLLM's proxy beside the gateway, on one core. Neither an error nor a rival: a setting that people compare with.

LiteLLM lives in an environment of its own, so that neither meets the other's packages:

    python3 -m venv .bench/litellm
    .bench/litellm/bin/pip install 'litellm[proxy]==1.108.7' opentelemetry-sdk

It runs without a database, budgets or callbacks, with a master key: it counts nothing and keeps nothing. The gateway
has a key, four armed caps and its ledger.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import machine, provider, servers
from bench.figures import Figure, ratio
from bench.json_requests import line
from bench.load import Load, interleaved
from bench.servers import Target
from bench.suite import Setting

_KEY = "sk-bench-master"
_MODEL = "gpt-4o-mini"


def benchmark(setting: Setting) -> Sequence[Figure]:
    """Requests per second at 32 connections and what one call at a time waits."""
    folder, cores = setting.folder, setting.cores
    found: list[Figure] = []
    with (
        provider.mock(folder, cores.load) as (upstream, _),
        servers.gateway(folder, cores.server, f"http://127.0.0.1:{upstream}/v1") as gateway,
        _proxy(folder, cores.server, f"http://127.0.0.1:{upstream}/v1") as proxy,
    ):
        targets = (gateway, proxy)
        for connections in (32, 1):
            load = Load(connections=connections, body=provider.REQUEST, seconds=setting.seconds)
            runs = interleaved(targets, load, rounds=setting.rounds, folder=folder, cores=cores)
            for name, measured in runs.items():
                found.append(line(f"{name}, {connections} connection{'s' * (connections > 1)}", measured))
            if connections == 32:
                rates = runs[gateway.name].per_s, runs[proxy.name].per_s
                found.append(_times(*rates))
    return found


def _times(gateway: float, proxy: float) -> Figure:
    found = ratio("gateway / LiteLLM's proxy, requests per second", gateway, proxy, at_least=30)
    return Figure(
        what=found.what, figure=f"{gateway / proxy:.1f} times", bar="at least 30 times", met=found.met
    )


@contextlib.contextmanager
def _proxy(folder: Path, core: int, upstream_url: str) -> Iterator[Target]:
    port = machine.free_port()
    config = folder / "litellm.json"
    config.write_text(
        json.dumps(
            {
                "model_list": [
                    {
                        "model_name": _MODEL,
                        "litellm_params": {
                            "model": f"openai/{_MODEL}",
                            "api_base": upstream_url,
                            "api_key": "sk-bench",
                        },
                    }
                ],
                "general_settings": {"master_key": _KEY},
            }
        )
    )
    program = machine.LITELLM
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = said.split()[-1]
    command = [str(program), "--config", str(config), "--port", str(port), "--num_workers", "1"]
    environ = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "NO_DOCS": "True"}
    with machine.process(command, core=core, port=port, folder=folder, environ=environ) as started:
        yield Target(f"LiteLLM {version} without a database", port, started.pid, _KEY)
