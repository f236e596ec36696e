"""Loading by name or path: the search order, the cache, and messages for what is not found."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from graphcaps.cli.main import app
from graphcaps.data.datasets import download, loading, molecule_tasks
from graphcaps.data.datasets.cache import cache_contents
from graphcaps.data.datasets.loading import (
    find_dataset,
    load_dataset,
    open_dataset,
    search_folders,
    source_digest,
)
from graphcaps.data.readers.graph_metadata import ReadingWarning
from graphcaps.errors import ArgumentError, DataError, GraphcapsError, MissingExtraError, UsageError


@pytest.fixture(autouse=True)
def isolated_folders(tmp_path, monkeypatch):
    """Each test has its own home, cache and working folder, and no network."""
    monkeypatch.delenv("GRAPHCAPS_DATA", raising=False)
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("GRAPHCAPS_TU_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def write_tu(folder: Path, name: str, graphs: int = 2) -> Path:
    """A data set of single edges."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [(2 * graph + 1, 2 * graph + 2) for graph in range(graphs)]
    rows = [f"{one}, {two}\n{two}, {one}\n" for one, two in pairs]
    (folder / f"{name}_A.txt").write_text("".join(rows))
    indicator = [f"{graph + 1}\n{graph + 1}\n" for graph in range(graphs)]
    (folder / f"{name}_graph_indicator.txt").write_text("".join(indicator))
    (folder / f"{name}_graph_labels.txt").write_text("".join(f"{graph % 2}\n" for graph in range(graphs)))
    return folder


def write_zip(path: Path, name: str, graphs: int = 2) -> Path:
    folder = write_tu(path.parent / f"{name}-{graphs}-source" / name, name, graphs)
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"{name}/{file.name}")
    return path


@pytest.mark.parametrize("name", ["planted-parts", "planted-parts-hard", "Planted_Parts"])
def test_embedded_sets_need_no_file(name):
    loaded = open_dataset(name)
    assert loaded.source is None
    assert loaded.store.name == name.lower().replace("_", "-")
    assert len(loaded.store) == 360


def test_levels_differ():
    easy, named, hard = (load_dataset(f"planted-parts{level}") for level in ("", "-easy", "-hard"))
    assert torch.equal(easy.neighbours, named.neighbours)
    assert easy.num_nodes != hard.num_nodes


def test_folders_are_searched_in_order(tmp_path, monkeypatch):
    root, named, share = tmp_path / "root", tmp_path / "named", tmp_path / "share" / "graphcaps"
    for graphs, folder in enumerate((root, named, share), start=2):
        write_tu(folder / "MUTAG", "MUTAG", graphs)
    monkeypatch.setenv("GRAPHCAPS_DATA", str(named))
    assert search_folders(root) == (root, named, share)
    assert len(load_dataset("MUTAG", root)) == 2
    assert len(load_dataset("MUTAG")) == 3
    monkeypatch.delenv("GRAPHCAPS_DATA")
    assert len(load_dataset("MUTAG")) == 4


def test_only_a_name_of_the_catalogue_makes_a_data_set_of_the_catalogue(tmp_path, monkeypatch):
    root = tmp_path / "root"
    root.mkdir()
    zipped = write_zip(root / "MUTAG.zip", "MUTAG")
    write_tu(root / "OWN", "OWN")
    for cache in (True, False):  # the same file by name and by path shares a cache file
        assert load_dataset("mutag", root, cache=cache).catalogue_name == "MUTAG"
        assert load_dataset(zipped, cache=cache).catalogue_name is None
        assert load_dataset("MUTAG", root, cache=cache).catalogue_name == "MUTAG"
        assert load_dataset("OWN", root, cache=cache).catalogue_name is None
    assert load_dataset("planted_parts").catalogue_name == "planted-parts"
    monkeypatch.chdir(root)
    assert load_dataset("MUTAG.zip").catalogue_name is None
    table = root / "proteins.csv"
    table.write_text("graph,source,target\n1,a,b\n", "utf-8")
    assert load_dataset("proteins.csv").catalogue_name is None
    assert load_dataset("MUTAG", root)[[1]].to("cpu").catalogue_name == "MUTAG"


def test_every_layout_in_a_folder(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    assert find_dataset("ONE", write_tu(tmp_path / "flat", "ONE")) == tmp_path / "flat"
    write_tu(root / "TWO" / "raw", "TWO")
    assert find_dataset("TWO", root) == root / "TWO" / "raw"
    write_tu(root / "THREE", "THREE")
    assert find_dataset("THREE", root) == root / "THREE"
    write_zip(root / "THREE.zip", "THREE")
    assert find_dataset("THREE", root) == root / "THREE.zip"


def test_case_and_punctuation_are_ignored_unless_a_name_matches_exactly(tmp_path):
    root = tmp_path / "root"
    write_tu(root / "IMDB-BINARY", "IMDB-BINARY")
    assert load_dataset("imdb_binary", root).name == "IMDB-BINARY"
    write_tu(root / "imdb_binary", "mine", 3)
    assert len(load_dataset("imdb_binary", root)) == 3


def test_paths(tmp_path, monkeypatch):
    folder, packed = (
        write_tu(tmp_path / "sets" / "OWN", "OWN"),
        write_zip(tmp_path / "sets" / "OWN.zip", "OWN"),
    )
    assert load_dataset(folder).name == load_dataset(str(folder)).name == load_dataset(packed).name == "OWN"
    monkeypatch.chdir(tmp_path / "sets")
    assert open_dataset("OWN").source == Path("OWN")  # a TU folder in the working folder
    assert open_dataset("OWN.zip").source == Path("OWN.zip")
    assert open_dataset("./OWN").source == Path("OWN")


@pytest.mark.parametrize("missing", ["no/such/folder", "nothing.zip", ".."])
def test_a_missing_path(missing):
    with pytest.raises(DataError, match=r"file or folder not found|expected a folder with a TU data set"):
        load_dataset(missing)


def test_a_missing_root(tmp_path):
    with pytest.raises(ArgumentError, match="'root' must be an existing folder"):
        load_dataset("MUTAG", tmp_path / "gone")


def test_a_known_name_without_network_names_the_folder(tmp_path):
    with pytest.raises(GraphcapsError) as caught:
        load_dataset("mutag")
    text = str(caught.value)
    assert text.startswith("MUTAG could not be downloaded (")
    assert f"put MUTAG.zip into {tmp_path / 'share' / 'graphcaps'}, or name the folder" in text


@pytest.mark.parametrize(
    ("name", "near"), [("MUTAGG", "Did you mean MUTAG?"), ("PTC", "Did you mean PTC_MR")]
)
def test_an_unknown_name_suggests_similar_ones(name, near):
    for allowed in (True, False):
        with pytest.raises(UsageError) as caught:
            load_dataset(name, download=allowed)
        assert near in str(caught.value)
        assert "For your own graphs, give the path of a folder or of a file that ends in .csv, .tsv," in str(
            caught.value
        )
        assert "graphcaps data list" not in str(caught.value)


@pytest.mark.parametrize("smiles", ["CCO", "c1ccccc1", "CC(=O)O", "ClCBr", "[13C]C#N"])
def test_a_smiles_is_not_sent_to_the_network(smiles, monkeypatch):
    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr(loading, "download_tu", fetch)
    with pytest.raises(
        ArgumentError, match=r"got '-'\. Standard input is not read; write the graphs to a file\."
    ):
        load_dataset("-")
    with pytest.raises(UsageError, match="looks like a SMILES, which is not sent to the network") as caught:
        load_dataset(smiles)
    assert str(caught.value).startswith(
        f"There is no file or folder '{smiles}' here, and no data set of this name"
    )


@pytest.mark.parametrize("file", ["mols.smi", "table.txt", "book.xlsx", "mols.csv.gz"])
def test_a_file_of_another_format_is_named_and_not_asked_for(file, tmp_path, monkeypatch):
    def fetch(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr(loading, "download_tu", fetch)
    monkeypatch.chdir(tmp_path)
    Path(file).write_text("CCO ethanol\n")
    for options in ({}, {"label": "active"}):
        for name in (file, f"./{file}", tmp_path / file):
            with pytest.raises(
                DataError, match=r": expected a file that ends in \.csv, \.tsv, .*\.zip, found '"
            ):
                load_dataset(name, **options)


def test_a_name_without_similar_ones_is_said_to_be_no_path_and_no_data_set(tmp_path):
    with pytest.raises(UsageError) as caught:
        load_dataset("nofile", download=False)
    assert str(caught.value) == (
        "There is no file or folder 'nofile' here, and no data set of this name in "
        f"{tmp_path / 'share' / 'graphcaps'} or in the TU collection (downloads are disabled). "
        "Known data sets are listed by: graphcaps data list. For your own graphs, give the path of a "
        "folder or of a file that ends in .csv, .tsv, .parquet, .graphml, .gexf, .json or .zip (docs/inputs.md)."
    )


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("kx", "kx.csv"),
        ("kx.cvs", "kx.csv"),
        ("network", "networks.json"),
        ("MUTAGG", "MUTAG or mutagg2.zip"),
    ],
)
def test_an_unknown_name_suggests_files_of_the_working_folder(name, near, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("kx.csv", "networks.json", "mutagg2.zip", "network.txt", "kx.py"):
        Path(file).touch()
    with pytest.raises(UsageError) as caught:
        load_dataset(name, download=False)
    assert f" Did you mean {near}? " in str(caught.value)


def test_downloads_are_used_and_checked_later(tmp_path, monkeypatch):
    served = write_zip(tmp_path / "AIDS.zip", "AIDS").read_bytes()
    requests: list[tuple[str, str | None]] = []

    def fetch(name: str, folder: Path, *, sha256: str | None = None) -> download.Download:
        requests.append((name, sha256))
        folder.mkdir(parents=True)
        path = folder / f"{name}.zip"
        path.write_bytes(served)
        (folder / f"{name}.zip.sha256").write_text(f"{'0' * 64}  {name}.zip\n")
        return download.Download(path, "0" * 64, False)

    monkeypatch.setattr(loading, "download_tu", fetch)
    with pytest.raises(DataError, match="of the download"):
        load_dataset("AIDS")
    (tmp_path / "share" / "graphcaps" / "AIDS.zip.sha256").unlink()
    assert load_dataset("AIDS").name == "AIDS"
    assert requests == [("AIDS", None)]


def test_the_checksum_of_the_catalogue_is_required(monkeypatch, tmp_path):
    def fetch(name: str, folder: Path, *, sha256: str | None = None) -> download.Download:
        raise download.DownloadError(name, f"asked for {sha256}", folder)

    monkeypatch.setattr(loading, "download_tu", fetch)
    with pytest.raises(GraphcapsError, match="asked for c419bdc8"):
        load_dataset("MUTAG")


# ---------------------------------------------------------------------- the cache
@pytest.mark.parametrize("packed", [True, False])
def test_the_second_load_comes_from_the_cache(tmp_path, packed):
    source = write_zip(tmp_path / "OWN.zip", "OWN") if packed else write_tu(tmp_path / "OWN", "OWN")
    first, second = open_dataset(source), open_dataset(source)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert torch.equal(first.store.neighbours, second.store.neighbours)
    assert second.store.class_names == ("0", "1")


@pytest.mark.parametrize("packed", [True, False])
def test_a_changed_source_is_read_again(tmp_path, packed):
    make = (lambda n: write_zip(tmp_path / "OWN.zip", "OWN", n)) if packed else None
    for graphs in (2, 3, 4):
        source = make(graphs) if make else write_tu(tmp_path / "OWN", "OWN", graphs)
        loaded = open_dataset(source)
        assert (len(loaded.store), loaded.from_cache) == (graphs, False)


def test_a_source_that_changes_while_it_is_read_is_not_cached(tmp_path, monkeypatch):
    source, read = write_tu(tmp_path / "OWN", "OWN"), loading.read_tu

    def slow(path: Path) -> object:
        store = read(path)
        write_tu(source, "OWN", 5)
        return store

    monkeypatch.setattr(loading, "read_tu", slow)
    load_dataset(source)
    assert cache_contents().files == 0


def test_without_cache_nothing_is_cached(tmp_path):
    source = write_tu(tmp_path / "OWN", "OWN")
    assert not open_dataset(source, cache=False).from_cache
    assert cache_contents().files == 0
    open_dataset(source)
    assert not open_dataset(source, cache=False).from_cache


def test_an_unwritable_cache_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("in the way")
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "blocked"))
    source = write_tu(tmp_path / "OWN", "OWN")
    assert len(load_dataset(source)) == len(load_dataset(source)) == 2


def test_a_damaged_cache_file_is_replaced(tmp_path):
    source = write_tu(tmp_path / "OWN", "OWN")
    load_dataset(source)
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    assert not open_dataset(source).from_cache
    assert open_dataset(source).from_cache


def test_invalid_files_are_not_cached(tmp_path):
    source = write_tu(tmp_path / "OWN", "OWN")
    (source / "OWN_A.txt").write_text("1, 2\n2, 3\n")
    with pytest.raises(DataError, match="line 2"):
        load_dataset(source)
    assert cache_contents().files == 0


def test_an_unknown_home_folder_is_reported(tmp_path, monkeypatch):
    with pytest.raises(ArgumentError, match="'name' must be in a known home folder"):
        find_dataset("~no-such-user/T")
    with pytest.raises(ArgumentError, match="'root' must be in a known home folder"):
        search_folders("~no-such-user")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as without HOME and a user entry
    assert search_folders(tmp_path) == (tmp_path,)
    with pytest.raises(UsageError, match="home folder is unknown; set HOME"):
        search_folders()


def test_graph_attributes_of_a_tu_folder_are_said(tmp_path):
    folder = write_tu(tmp_path / "own", "own")
    load_dataset(folder, cache=False)  # says nothing
    (folder / "own_graph_attributes.txt").write_text("0.5\n0.7\n")
    note = "own_graph_attributes.txt is not read: models predict classes of graphs."
    for cache in (False, True, True):
        with pytest.warns(ReadingWarning) as caught:
            load_dataset(folder, cache=cache)
        assert [str(warning.message) for warning in caught] == [f"load_dataset: {note}"]
    assert open_dataset(folder).all_notes == (note,)
    shown = CliRunner().invoke(app, ["data", "info", str(folder), "--json"])
    assert json.loads(shown.stdout)["reading"] == [note]


# ---------------------------------------------------------------------- generated molecules
@pytest.fixture
def few_molecules(monkeypatch):
    """The molecule tasks with 20 molecules."""
    monkeypatch.setattr(molecule_tasks, "molecule_task", partial(molecule_tasks.molecule_task, num_graphs=20))


def without_rdkit(monkeypatch):
    for name in ("rdkit", "rdkit.Chem"):
        monkeypatch.setitem(sys.modules, name, None)


def test_generated_molecules_come_from_the_cache_the_second_time(few_molecules):
    pytest.importorskip("rdkit")
    first, second = open_dataset("benzene"), open_dataset("Benzene")
    assert (first.from_cache, second.from_cache, first.source) == (False, True, None)
    assert first.store.catalogue_name == second.store.catalogue_name == "benzene"
    assert first.store.smiles == second.store.smiles
    assert first.store.featurizer == second.store.featurizer == "standard"
    for name in ("element", "part", "kind", "reason"):
        assert torch.equal(first.store.truth[name], second.store.truth[name])
    assert open_dataset("benzene", cache=False).from_cache is False


def test_generated_molecules_need_rdkit_only_to_be_generated(few_molecules, monkeypatch):
    pytest.importorskip("rdkit")
    with monkeypatch.context() as context:
        without_rdkit(context)
        with pytest.raises(MissingExtraError, match=r"needs rdkit: .*'graphcaps\[chem\]'"):
            load_dataset("nitro-or-amine")
        result = CliRunner().invoke(app, ["data", "info", "nitro-or-amine"])
        assert result.exit_code == 2
        assert "pip install 'graphcaps[chem]'" in result.stderr
    store = load_dataset("nitro-or-amine")
    without_rdkit(monkeypatch)
    assert load_dataset("nitro-or-amine").smiles == store.smiles


@pytest.mark.parametrize("name", ["ba-2motifs", "BA_2Motifs", "ba-multishapes"])
def test_barabasi_albert_sets_need_no_file(name):
    loaded = open_dataset(name)
    assert (loaded.source, len(loaded.store)) == (None, 1000)
    assert loaded.store.catalogue_name == loaded.store.name == name.lower().replace("_", "-")


def test_the_digest_of_a_source_follows_its_content(tmp_path):
    (tmp_path / "a.csv").write_text("smiles,y\nC,0\n")
    (tmp_path / "b.csv").write_text("smiles,y\nC,1\n")
    first = source_digest(tmp_path / "a.csv")
    assert first != source_digest(tmp_path / "b.csv")
    (tmp_path / "b.csv").write_text("smiles,y\nC,0\n")
    assert first == source_digest(tmp_path / "b.csv")
    write_tu(tmp_path / "TINY", "TINY")
    whole = source_digest(tmp_path / "TINY")
    write_tu(tmp_path / "OTHER" / "TINY", "TINY", graphs=3)
    assert whole != source_digest(tmp_path / "OTHER" / "TINY")
    assert source_digest("planted-parts") == "planted-parts"


def test_a_folder_that_does_not_exist_is_said_before_options_of_user_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("missing/", "missing: file or folder not found"),
        ("empty/", "a folder with a TU data set .*, found an empty folder"),
    ):
        with pytest.raises(DataError, match=message):
            open_dataset(f"{tmp_path}/{name}", label="kind")


def test_a_folder_of_the_working_folder_is_not_looked_for_in_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("graphcaps.data.datasets.loading._download", lambda *_: pytest.fail("looked for"))
    (tmp_path / "empty").mkdir()
    write_tu(tmp_path / "outer" / "inner", "TINY", graphs=3)
    write_tu(tmp_path / "root" / "named", "named", graphs=4)
    (tmp_path / "named").mkdir()
    for root in (None, tmp_path / "root"):
        with pytest.raises(DataError, match=r"empty: expected a folder with a TU data set"):
            open_dataset("empty", root, label="kind")
    assert len(open_dataset("outer").store) == 3
    assert len(open_dataset("named", tmp_path / "root").store) == 4


def test_options_of_user_files_are_refused_for_a_data_set_in_a_subfolder(tmp_path: Path) -> None:
    write_tu(tmp_path / "outer" / "inner", "TINY", graphs=3)
    assert len(open_dataset(tmp_path / "outer").store) == 3
    with pytest.raises(ArgumentError, match="'label' must be omitted"):
        open_dataset(tmp_path / "outer", label="kind")
