"""The zoo: problems of every kind, each judged by refits.

``families`` knows the estimators and how strongly each is to be regularised, ``tables`` the data and what
is wrong with them, ``draw`` puts a numbered problem together, ``reference`` refits and settles disputes by
the objective, ``record`` runs onefit and writes down what happened, ``verdicts`` says whether that is good
enough, and ``python -m zoo`` runs them all.  ``python -m zoo.choice`` holds what estimators that tune
themselves choose on such tables against exact paths.
"""
