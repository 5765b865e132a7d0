"""Generate Python code that converts HDF5 files to another container, and that opens a container with xarray.

The code is measured as it is printed. It imports modules in its first lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ORIGINAL, REPACKED = "hdf5", "hdf5-repacked"
REFERENCES = ("kerchunk-json", "kerchunk-parquet", "icechunk-virtual")
WRITTEN = ("icechunk", "zarr", "zarr-shards")
CONTAINERS = (ORIGINAL, REPACKED, *REFERENCES, *WRITTEN)
_SUFFIXES = {"kerchunk-json": "json", "kerchunk-parquet": "parquet", "icechunk-virtual": "icechunk"}
_SUFFIXES |= {"icechunk": "icechunk", "zarr": "zarr", "zarr-shards": "zarr"}
# What h5netcdf calls the axes of files without dimension scales.
_UNNAMED = ', phony_dims="access"'
_JOINED = 'data_vars="minimal", coords="minimal", compat="override", join="override"'

# VirtualiZarr sets fill values in references to HDF5's default, 0, which xarray would mask in place of _FillValue.
_SET_FILL = """for name in [name for name in references if name.endswith(".zarray")]:
    node, attributes = [references[key] for key in (name, name.replace(".zarray", ".zattrs"))]
    is_text = isinstance(node, str)
    node, attributes = [json.loads(one) for one in (node, attributes)] if is_text else (node, attributes)
    fill = attributes.get("_FillValue")
    node["fill_value"] = fill if fill == fill else "NaN"
    references[name] = json.dumps(node) if is_text else node
with open(path, "w") as file:
    json.dump(content, file)
"""


@dataclass(frozen=True)
class Files:
    """The files to convert.

    Attributes:
        bucket: the bucket that has them and the containers.
        number: number of files.
        group: group of the datasets.
        dropped: names of other datasets in this group.
        dimension: dimension along which the files are joined, as h5netcdf names it.
        virtual_dimension: the same, as VirtualiZarr names it.
        is_named: whether the files have dimension scales.
    """

    bucket: str
    number: int
    group: str = "/"
    dropped: Sequence[str] = ()
    dimension: str = ""
    virtual_dimension: str = ""
    is_named: bool = True


@dataclass(frozen=True)
class Form:
    """A container, the shapes of its chunks, and the settings to read it.

    Attributes:
        container: its kind, one of `CONTAINERS`.
        rule: how the chunk shapes were chosen: "same", the name of an access, or "compromise".
        chunks: chunk shape by dataset; empty to leave the chunks unchanged.
        shards: shard shape by dataset; empty for a container without shards.
        cache: arguments with which s3fs opens HDF5 files; empty for its defaults.
    """

    container: str
    rule: str = "same"
    chunks: Mapping[str, Sequence[int]] = field(default_factory=dict)
    shards: Mapping[str, Sequence[int]] = field(default_factory=dict)
    cache: str = ""

    @property
    def name(self) -> str:
        """A name that identifies the form, also as part of a file name."""
        parts = (self.container, self.rule.replace(" ", "-") if self.chunks else "", "blockcache" if self.cache else "")
        return "-".join(filter(None, parts))

    @property
    def key(self) -> str:
        """The key of the container in the bucket, or the prefix of its keys."""
        if self.container in (ORIGINAL, REPACKED):
            return "original" if self.container == ORIGINAL else self.name
        return f"{self.name}.{_SUFFIXES[self.container]}"


def build_opening(form: Form, files: Files) -> str:
    """Return code that opens a container with xarray as `data`."""
    at = f"{files.bucket}/{form.key}"
    if form.container in (ORIGINAL, REPACKED):
        cache = f", {form.cache}" if form.cache else ""
        return (
            "import s3fs, xarray\n"
            "store = s3fs.S3FileSystem()\n"
            f'files = [store.open(path{cache}) for path in sorted(store.glob("{at}/*"))]\n'
            f"data = {build_joining('files', files)}\n"
        )
    if form.container.startswith("kerchunk"):
        return (
            "import xarray\n"
            'protocols = {"remote_protocol": "s3", "target_protocol": "s3"}\n'
            f'data = xarray.open_dataset("s3://{at}", engine="kerchunk", storage_options=protocols)\n'
        )
    if form.container in ("zarr", "zarr-shards"):
        return (
            "import obstore.store, xarray, zarr.storage\n"
            f'store = obstore.store.S3Store("{files.bucket}", prefix="{form.key}")\n'
            "data = xarray.open_zarr(zarr.storage.ObjectStore(store, read_only=True), chunks=None, zarr_format=3)\n"
        )
    authorised = ""
    lines = "import icechunk, xarray\n" + _build_storage(form, files)
    if form.container == "icechunk-virtual":
        lines += "credentials = icechunk.s3_from_env_credentials()\n"
        lines += f'rights = icechunk.containers_credentials({{"s3://{files.bucket}/": credentials}})\n'
        authorised = ", authorize_virtual_chunk_access=rights"
    return (
        f"{lines}repository = icechunk.Repository.open(storage{authorised})\n"
        'data = xarray.open_zarr(repository.readonly_session("main").store, chunks=None, consolidated=False)\n'
    )


def build_joining(source: str, files: Files) -> str:
    """Return an expression that opens HDF5 files as one dataset of xarray; `source` is an expression for the files."""
    group = f", group={files.group!r}" if files.group != "/" else ""
    unnamed = "" if files.is_named else _UNNAMED
    dropped = f", drop_variables={_format_names(files.dropped)}" if files.dropped else ""
    joined = f', combine="nested", concat_dim={files.dimension!r}, {_JOINED}' if files.number > 1 else ""
    return f'xarray.open_mfdataset({source}, engine="h5netcdf"{group}{unnamed}{dropped}{joined})'


def build_virtual_opening(files: Files) -> str:
    """Return code that indexes the files as a list `parts`, a virtual dataset for each file."""
    group = f", group={files.group!r}" if files.group != "/" else ""
    dropped = f"drop_variables={_format_names(files.dropped)}" if files.dropped else ""
    return (
        "import obstore.store, s3fs, xarray\n"
        "from obspec_utils.registry import ObjectStoreRegistry\n"
        "from virtualizarr import open_virtual_dataset\n"
        "from virtualizarr.parsers import HDFParser\n"
        f'registry = ObjectStoreRegistry({{"s3://{files.bucket}": obstore.store.S3Store("{files.bucket}")}})\n'
        f"parser = HDFParser({', '.join(filter(None, (group.removeprefix(', '), dropped)))})\n"
        f'urls = [f"s3://{{path}}" for path in sorted(s3fs.S3FileSystem().glob("{files.bucket}/original/*"))]\n'
        "parts = [open_virtual_dataset(url, registry=registry, parser=parser) for url in urls]\n"
    )


def build_conversion(form: Form, files: Files) -> str:
    """Return code that makes a container from the files; an empty string for one that needs none.

    Repacked files are made by h5repack instead.
    """
    if form.container in REFERENCES:
        return _build_indexing(form, files)
    if form.container not in WRITTEN:
        return ""
    opening = build_opening(Form(ORIGINAL), files)
    lines = [f"chunks = {_format_shapes(form.chunks)}"]
    setting = ["chunks=sides"]
    if form.shards:
        lines.append(f"shards = {_format_shapes(form.shards)}")
        setting.append("shards=shards[name]")
    lines += [
        "for name, sides in chunks.items():",
        f"    data[name] = data[name].chunk({'shards[name]' if form.shards else 'sides'})",
        f"    data[name].encoding.update({', '.join(setting)})",
    ]
    if form.container == "icechunk":
        opening = opening.replace("import s3fs", "import icechunk, s3fs", 1)
        lines += _build_storage(form, files).splitlines()
        lines += [
            'session = icechunk.Repository.create(storage).writable_session("main")',
            "data.to_zarr(session.store, zarr_format=3, consolidated=False)",
            'session.commit("converted")',
        ]
    else:
        opening = opening.replace("import s3fs", "import obstore.store, s3fs", 1).replace(
            "xarray", "xarray, zarr.storage", 1
        )
        lines += [
            f'target = obstore.store.S3Store("{files.bucket}", prefix="{form.key}")',
            'data.to_zarr(zarr.storage.ObjectStore(target), mode="w", zarr_format=3, consolidated=True)',
        ]
    return opening + "".join(f"{line}\n" for line in lines)


def _build_indexing(form: Form, files: Files) -> str:
    code = build_virtual_opening(files)
    if files.number > 1:
        dimension = repr(files.virtual_dimension)
        code += f'data = xarray.concat(parts, {dimension}, {_JOINED}, combine_attrs="override")\n'
    else:
        code += "data = parts[0]\n"
    if form.container == "icechunk-virtual":
        store = (
            'place = {"region": os.environ["AWS_REGION"], "endpoint_url": os.environ.get("AWS_ENDPOINT_URL")}\n'
            "store = icechunk.s3_store(**place, allow_http=True, s3_compatible=True, force_path_style=True)\n"
        )
        return (
            code.replace("import obstore.store", "import icechunk, obstore.store, os", 1)
            + store
            + "config = icechunk.RepositoryConfig.default()\n"
            + f'config.set_virtual_chunk_container(icechunk.VirtualChunkContainer("s3://{files.bucket}/", store))\n'
            + _build_storage(form, files)
            + "repository = icechunk.Repository.create(storage, config)\n"
            + "repository.save_config()\n"
            + 'session = repository.writable_session("main")\n'
            + "data.vz.to_icechunk(session.store)\n"
            + 'session.commit("indexed")\n'
        )
    code = code.replace("import obstore", "import json, obstore", 1)
    if form.container == "kerchunk-json":
        code += f'path = "{form.key}"\ncontent = data.vz.to_kerchunk(format="dict")\nreferences = content["refs"]\n'
    else:
        code += (
            f'path = "{form.key}/.zmetadata"\ndata.vz.to_kerchunk("{form.key}", format="parquet")\n'
            'content = json.load(open(path))\nreferences = content["metadata"]\n'
        )
    recursive = ", recursive=True" if form.container == "kerchunk-parquet" else ""
    return f'{code}{_SET_FILL}s3fs.S3FileSystem().put("{form.key}", "{files.bucket}/{form.key}"{recursive})\n'


def _build_storage(form: Form, files: Files) -> str:
    return f'storage = icechunk.s3_storage(bucket="{files.bucket}", prefix="{form.key}", from_env=True)\n'


def _format_names(names: Sequence[str]) -> str:
    return "[" + ", ".join(map(repr, names)) + "]"


def _format_shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    return "{" + ", ".join(f"{name!r}: {tuple(map(int, sides))}" for name, sides in shapes.items()) + "}"
