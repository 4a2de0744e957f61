"""Strategies: which point of the space is measured next. Both use only the ratio of times to the default tiling."""
from __future__ import annotations

import collections
import random
import warnings
from typing import Any, Callable, Optional

from .problem import tiling_text

Point = tuple[str, dict[str, int]]
Refusal = Callable[[str, str], str]
TRIES = 400  # so many refused or known points in a row mean that the space is exhausted


def key_of(point: Point) -> str:
    return ("frame=%s %s" % (point[0], tiling_text(point[1]))).strip()


class Search:
    """Common part of the strategies. A point is not suggested twice. Refused points are counted by their reason."""

    def __init__(self, frames: list[dict[str, Any]], default: Point, refusal: Refusal, seed: int) -> None:
        self.frames, self.default, self.refusal, self.seed = {f["frame"]: f for f in frames}, default, refusal, seed
        self.results: dict[str, Optional[float]] = {}
        self.refused: collections.Counter[str] = collections.Counter()
        self._sentences: dict[str, str] = {}

    def ask(self) -> Optional[Point]:
        """A point that was not measured yet, or None if there is none."""
        for _ in range(TRIES):
            point = self._suggest()
            why = self._why_not(point)
            if not why:
                self.results[key_of(point)] = None
                return point
            self._skip(point)
        return None

    def tell(self, point: Point, ratio: Optional[float]) -> None:
        """Reports the ratio of times for a point of ask(), or None if it failed."""
        self.results[key_of(point)] = ratio

    def recall(self, point: Point, ratio: Optional[float]) -> None:
        """The same for a point that was measured before this search began."""
        self.results[key_of(point)] = ratio

    def _why_not(self, point: Point) -> str:
        key = key_of(point)
        if key in self.results:
            return "known"
        if key not in self._sentences:
            self._sentences[key] = self.refusal(point[0], tiling_text(point[1]))
            if self._sentences[key]:
                self.refused[self._sentences[key].split(": ", 1)[-1].split(" ")[0]] += 1
        return self._sentences[key]

    def _suggest(self) -> Point:
        raise NotImplementedError

    def _skip(self, point: Point) -> None:
        pass


class RandomSearch(Search):
    """Chooses the value of every knob independently, all values with the same probability."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.random = random.Random(self.seed)

    def _suggest(self) -> Point:
        return self._by_chance()

    def _by_chance(self) -> Point:
        frame = self.frames[self.random.choice(sorted(self.frames))]
        return frame["frame"], {k["knob"]: self.random.choice(k["values"]) for k in frame["knobs"]}


class TpeSearch(RandomSearch):
    """Optuna's tree-structured Parzen estimator over the positions in the lists of values. Where it suggests only refused and known points,
    points by chance follow."""

    STARTUP = 16
    STUCK = 100  # such points in a row

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.optuna = optuna
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna warns about experimental options
            sampler = optuna.samplers.TPESampler(seed=self.seed, n_startup_trials=self.STARTUP, multivariate=True, group=True, constant_liar=True)
        self.study = optuna.create_study(sampler=sampler)
        self.trials: dict[str, Any] = {}
        self.skipped = 0  # since the last point that was suggested for the first time

    def ask(self) -> Optional[Point]:
        self.skipped = 0
        return super().ask()

    def _suggest(self) -> Point:
        if self.skipped >= self.STUCK:
            return self._by_chance()
        trial = self.study.ask()
        names = sorted(self.frames)
        frame = self.frames[names[0] if len(names) == 1 else trial.suggest_categorical("frame", names)]
        knobs = {}
        for k in frame["knobs"]:
            at = trial.suggest_int("%s.%s" % (frame["frame"], k["knob"]), 0, len(k["values"]) - 1)
            knobs[k["knob"]] = k["values"][at]
        point = (frame["frame"], knobs)
        self.trials[key_of(point)] = trial
        return point

    def _skip(self, point: Point) -> None:
        # Not kept as a result: many bad results would hide the measured ones, and refusing the point again is cheap.
        self.skipped += 1
        trial = self.trials.pop(key_of(point), None)
        if trial is not None:
            self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)

    def tell(self, point: Point, ratio: Optional[float]) -> None:
        super().tell(point, ratio)
        trial = self.trials.pop(key_of(point), None)
        if trial is None:
            self.recall(point, ratio)
        elif ratio is None:
            self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)
        else:
            self.study.tell(trial, ratio)

    def recall(self, point: Point, ratio: Optional[float]) -> None:
        super().recall(point, ratio)
        frame, knobs = point
        if ratio is None or frame not in self.frames:
            return
        distributions, params = {}, {}
        if len(self.frames) > 1:
            params["frame"], distributions["frame"] = frame, self.optuna.distributions.CategoricalDistribution(sorted(self.frames))
        for k in self.frames[frame]["knobs"]:
            if knobs.get(k["knob"], 0) not in k["values"]:
                return  # a point outside of the space is of no use
            name = "%s.%s" % (frame, k["knob"])
            params[name] = k["values"].index(knobs.get(k["knob"], 0))
            distributions[name] = self.optuna.distributions.IntDistribution(0, len(k["values"]) - 1)
        self.study.add_trial(self.optuna.trial.create_trial(params=params, distributions=distributions, value=ratio))


STRATEGIES = {"random": RandomSearch, "tpe": TpeSearch}
