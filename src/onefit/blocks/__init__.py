"""Rows in blocks: squared-loss paths in two passes over the rows, a sum and a judgement.

    sums = rows.total(RowSums.of)
    path = net_path(sums, alphas)
    losses = rows.total(path.judge)

Nothing is kept whose size is that of the rows.
"""

from onefit.blocks.chosen import ChosenStrength, RowValues
from onefit.blocks.estimate import BlocksEstimate
from onefit.blocks.folds import NetWithoutSets, search_net_without_sets
from onefit.blocks.left_out_path import LeftOutPath
from onefit.blocks.loss_sums import LossSums
from onefit.blocks.paths import Spectrum, net_path, ridge_path
from onefit.blocks.rows import ArrayRows, Block, Rows, block_length
from onefit.blocks.sums import RowSums
from onefit.blocks.tuning import TunedPath, tune_net, tune_ridge

__all__ = [
    "ArrayRows",
    "Block",
    "BlocksEstimate",
    "ChosenStrength",
    "LeftOutPath",
    "LossSums",
    "NetWithoutSets",
    "RowSums",
    "RowValues",
    "Rows",
    "Spectrum",
    "TunedPath",
    "block_length",
    "net_path",
    "ridge_path",
    "search_net_without_sets",
    "tune_net",
    "tune_ridge",
]
