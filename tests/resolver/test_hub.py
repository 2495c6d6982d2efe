"""The model hub: headers by ranges, refusals with a code, nothing without the extra."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from loopback_hub import serve
from storing import as_resolved, write_sharded

from bitlane.errors import BitlaneError
from bitlane.resolver.api import resolve
from bitlane.resolver.checkpoint import from_dicts
from bitlane.resolver.hub import open_repository
from bitlane.resolver.verify import verify

if TYPE_CHECKING:
    from bitlane.resolver.resolution import Resolution

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 8192,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]},
}


def resolution() -> Resolution:
    return resolve(from_dicts({"config.json": CONFIG}), "vllm@0.32.0", "gb200")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose head is excluded and stored with scales."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    write_sharded(tmp_path, as_resolved(resolution(), changed={"lm_head": "fp8"}))
    return tmp_path


class Stub:
    """A file system as fsspec has them, over a folder; remembers what was read."""

    def __init__(self, folder: Path, fails: Exception | None = None) -> None:
        self.folder, self.fails = folder, fails
        self.opened: list[str] = []
        self.read = 0

    def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
        if self.fails is not None:
            raise self.fails
        return [{"name": f"{path}/{p.name}", "type": "file", "size": p.stat().st_size} for p in self.folder.iterdir()]

    def open(self, path: str, mode: str, block_size: int = 0) -> io.BytesIO:
        assert mode == "rb"
        self.opened.append(path)
        stub = self

        class File(io.BytesIO):
            def read(self, n: int | None = -1, /) -> bytes:
                data = super().read(n)
                stub.read += len(data)
                return data

        return File((self.folder / path.rpartition("/")[2]).read_bytes())


def test_a_repository_reads_as_its_folder_does(repository: Path) -> None:
    stub = Stub(repository)
    opened, tensors = open_repository("org/model", "v1", stub)
    assert opened.name == "org/model"
    assert opened.config == CONFIG
    assert all(path.startswith("org/model@v1/") for path in stub.opened)
    assert len(tensors.files) == 2
    stored = sum(p.stat().st_size for p in repository.iterdir())
    assert stub.read < 20_000 < stored
    (found,) = verify(resolve(opened, "vllm@0.32.0", "gb200"), tensors)
    assert (found.code, found.modules) == ("BL601", ("lm_head",))


def code(function: Any) -> str:
    with pytest.raises(BitlaneError) as caught:
        function()
    assert caught.value.help
    return caught.value.code


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert code(lambda: open_repository("org/model")) == "BL277"


@pytest.mark.parametrize(
    "error", [FileNotFoundError("no such repository"), ConnectionError("refused"), KeyError("odd")]
)
def test_what_the_hub_raises_is_one_refusal(tmp_path: Path, error: Exception) -> None:
    assert code(lambda: open_repository("org/model", files=Stub(tmp_path, error))) == "BL278"


@pytest.mark.parametrize("name", ["model", "/model", "org/", "a/b/c", "org/model@rev", "../model", ""])
def test_names_that_are_no_repository(tmp_path: Path, name: str) -> None:
    assert code(lambda: open_repository(name, files=Stub(tmp_path))) == "BL200"


def test_repositories_without_metadata_or_tensors(tmp_path: Path) -> None:
    assert code(lambda: open_repository("org/model", files=Stub(tmp_path))) == "BL206"
    (tmp_path / "config.json").write_text("{")
    assert code(lambda: open_repository("org/model", files=Stub(tmp_path))) == "BL203"
    (tmp_path / "config.json").write_text("{}")
    assert code(lambda: open_repository("org/model", files=Stub(tmp_path))) == "BL276"
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    assert code(lambda: open_repository("org/model", files=Stub(tmp_path))) == "BL272"
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert code(lambda: open_repository("org/model", files=Stub(tmp_path))) == "BL202"


def test_over_http_with_the_real_client(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub against a server on loopback: only ranges of the shards are sent."""
    with serve(repository, "org/model") as server:
        # Read when the package is first imported: nothing is asked of any other server.
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        hub = pytest.importorskip("huggingface_hub", reason="needs the extra `hub`")
        # The cache of an earlier instance would answer for another server.
        hub.HfFileSystem.clear_instance_cache()
        files = hub.HfFileSystem(endpoint=server.url, token=False)
        opened, tensors = open_repository("org/model", files=files)
        assert opened.config == CONFIG
        shards = [p for p in repository.iterdir() if p.suffix == ".safetensors"]
        assert all(0 < server.sent[p.name] < p.stat().st_size / 4 for p in shards)
        assert [f.code for f in verify(resolution(), tensors)] == ["BL601"]
