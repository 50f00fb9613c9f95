"""Texts of parameters and attributes that several estimators share, written once."""

from __future__ import annotations

from typing import TypeVar

Class = TypeVar("Class", bound=type)

TEXTS = {
    "selection": """selection : {"bagged_se", "bagged", "min", "1se"}, default "bagged_se"
        How the strength is chosen.  "bagged_se": the mean position, over resampled rows, of the strongest
        penalty within half a standard error of the smallest risk, but none that is beyond one standard error
        of it.  "bagged": the mean position of the smallest risk itself.  Rows are resampled by 100 draws with
        a fixed seed, whatever their order.  Both add to the risk of classes what labels that were not seen
        may do, where few rows are all but separated.
        "min": the smallest risk.  "1se": the strongest penalty whose risk exceeds it by no more than one
        standard error of the paired difference (``paired_error_path_``; Yates et al. 2021).""",
    "early_stopping": """early_stopping : bool, default True
        Stop the path once its risk is clearly past the minimum: by two standard errors of the paired
        difference, and five strengths or a decade on, unless what is left of it is no more than that, or
        takes next to nothing.  Where strengths are automatic, paths of curved losses (logistic, Poisson and
        the like) and of ridge within bounds then visit one in 0.8 decades, or one in 0.3 where the penalty
        has kinks, and those beside the smallest risk and the choice; what they pass over is not on the
        path.  No path ends, and an automatic one goes on to weaker penalties, while a column has more to say
        than by chance: where columns have very different units the largest would end it for all others.""",
    "eps": """eps : float, default 1e-3
        Length of the automatic path before strengths are added.""",
    "judged": """cv : int, splitter or iterable of (train, test), optional
        None leaves out every row, or every group where ``fit`` is given groups.  With a number of folds
        (stratified for classes) or a scikit-learn splitter, sets of rows leave together, from the same fits,
        and are solved anew where the risk needs that.
    scoring : str or callable, optional
        By what a strength is chosen, in place of the loss of the model: "mae", "mse", "rmse", "log-loss",
        "brier", "auc", any name or scorer of scikit-learn.  Risks are minus the score of the left-out
        predictions, all together.""",
    "columns": """positive : bool, default False
        Whether all coefficients are at least 0.
    bounds : (lower, upper), optional
        Of the coefficients: two numbers, or two arrays with one a column; None is no bound.
    penalty_factors : (p,) array-like or dict of name to factor, optional
        Factor on the penalty of each column: 0 leaves it unpenalised, infinity leaves it out.  By name those
        of other columns are 1.  They are taken as they are; glmnet divides them by their mean.""",
    "class_weight": """class_weight : dict, "balanced" or None
        Factors on the weights of the rows of each class in the fit.  "balanced" factors are those of the rows
        that are left when some leave.  The risk is not weighted by them.""",
    "solver": """max_iter, tol : number, optional
        Of a solver, as code for the namesake passes them.  The path is solved to machine precision by methods
        that end, which any tolerance and limit of iterations is satisfied by.
    n_jobs : int, optional
        Refits at a time, as in joblib, where rows have to be solved anew.""",
    "fit": """X : array-like, sparse matrix or sparse array of shape (n, p)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
            A row leaves with its whole weight, and the risk is the weighted mean.
        groups : array-like of shape (n,), optional
            Rows that leave together; with ``cv`` they are for the splitter.""",
    "paths": """risk_path_, std_error_path_ : (J,) arrays
        Left-out risk at each strength, and its standard error.
    paired_error_path_ : (J,) array
        Standard error of the difference between each risk and the smallest one (of classes, the smallest with
        what labels that were not seen may add).  Losses of a row at two
        strengths move together, so it is smaller than the error of either risk near the best.  An ℓ1 penalty
        makes risks jump for all rows at once, which the rows do not show: there it is too small, by a factor
        of two or so on few rows (Bayle, Janson and Mackey 2025).
    approx_error_path_ : (J,) array
        How far each risk may be off: proven, or at 95 % from refits of a sample of rows; infinite where
        nothing bounds it.  Strengths that cannot change the choice are judged roughly, and some of those
        between two that were judged are told from their neighbours: there it is infinite, too.
    guarantee_path_ : (J,) array of str
        Which of these: "exact" or "bounded", "sampled", and "rough".
    confidence_set_ : array
        Strengths that cannot be told from the best at 95 %, all comparisons taken together (Lei 2020), and
        those between them; strongest penalty first.  Strengths that were not visited are not judged.
    corrected_risk_ : float
        Risk of the tuned model, corrected for the choice: the smallest of many estimates is too small
        (Tsamardinos, Greasidou and Borboudakis 2018).  Computed when asked for, as is the set, without
        refits and from draws with a fixed seed.  With an ℓ1 penalty only about half of the optimism is
        removed.
    best_score_ : float
        Minus ``corrected_risk_``: larger is better.""",
    "loo_": """loo_ : RiskEstimate
        Of the chosen strength, with the rows, groups or folds left out that it was chosen by.
    n_iter_ : int
        Strengths that were solved.
    n_features_in_ : int
    feature_names_in_ : (p,) array
        Only if X has names.""",
}


def documented(cls: Class) -> Class:
    """Put the shared texts where the docstring of a class names them, ``<name>``."""
    text = cls.__doc__ or ""
    for name, shared in TEXTS.items():
        text = text.replace(f"<{name}>", shared)
    cls.__doc__ = text
    return cls
