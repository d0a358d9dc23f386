"""Who checks the input, starts the workers, watches them and stops them."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from evenhand.core.engine import Answer
from evenhand.core.errors import EngineError, EvenhandError, PairError
from evenhand.core.pair import Pair
from evenhand.core.protocol import Protocol
from evenhand.running.cluster.cluster import Cluster
from evenhand.running.cluster.coordinator import ClusterStanding, Coordinator
from evenhand.running.cluster.slices import Checked, Slice, Work, check
from evenhand.running.cluster.worker import Recipe, Worker
from evenhand.running.pace import Limits
from evenhand.store.shards import Place, ShardRow
from evenhand.store.shards.reading import Finished
from evenhand.store.shards.schema import rows_of

# Below so many rows, checking them here is quicker than starting workers for it.
_FEW_ROWS = 20_000


def check_all(
    cluster: Cluster, groups: Sequence[Slice], *, skip_bad: bool, protocols: Sequence[Protocol] = ()
) -> list[Checked]:
    """Every row read once before anything is judged; the first fault is raised, unless such rows are skipped.

    A pair that does not fill a slot of the protocols is refused in any case.
    """
    look = partial(check, skip_bad=skip_bad, protocols=[protocol for protocol in protocols if protocol.more])
    if sum(group.rows for group in groups) < _FEW_ROWS:
        found = [look(group) for group in groups]
    else:
        items = [{"number": number, "slice": pickle.dumps(group)} for number, group in enumerate(groups)]
        data = cluster.ray.data.from_items(items, override_num_blocks=len(items))
        done = data.map_batches(partial(_check_batch, look=look), batch_size=1, batch_format="pyarrow")
        rows = [
            row for batch in done.iter_batches(batch_size=None, batch_format="pyarrow") for row in batch.to_pylist()
        ]
        found = [pickle.loads(row["found"]) for row in sorted(rows, key=lambda row: row["number"])]
    if fault := next((each.unfilled for each in found if each.unfilled), None):
        raise fault
    fault = next((fault for each in found for fault in each.bad), None)
    if fault and not skip_bad:
        raise fault
    if not sum(each.count for each in found):
        names = ", ".join(dict.fromkeys(group.name for group in groups))
        raise PairError(names, None, "no pairs in this file", hint="expected rows with instruction and two outputs")
    return found


def _check_batch(batch: Any, *, look: Callable[[Slice], Checked]) -> Any:
    rows = batch.to_pylist()
    found = [pickle.dumps(look(pickle.loads(row["slice"]))) for row in rows]
    return {"number": [row["number"] for row in rows], "found": found}


def all_done(done: Finished, count: int, pairs: Iterable[Pair]) -> bool:
    """Whether a judge has nothing left to say of so many pairs; they are read only where that may be, to the first.

    >>> from evenhand.store.shards.schema import row_name
    >>> pair = Pair("Hi", "x", "y")
    >>> all_done(Finished([]), 1, [pair]), all_done(Finished([row_name(pair.id, pair.key)]), 1, [pair])
    (False, True)
    """
    return len(done) >= count and all(pair in done for pair in pairs)


def begun_in(place: Place) -> dict[str, Sequence[Answer]]:
    """The answers of conversations that were not brought to their end, by the conversation's key.

    Only files with such rows are read whole; of the others, one column.
    """
    begun: dict[str, Sequence[Answer]] = {}
    for name in place.names("part-", ".parquet"):
        for row in _unfinished(place, name):
            begun |= {record.key: record.answers for record in row.orders.values() if record.answers}
    return begun


def _unfinished(place: Place, name: str) -> list[ShardRow]:
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet

    with place.fs.open_input_file(place.file(name)) as source, parquet.ParquetFile(source) as file:
        finished = file.read(columns=["finished"]).column("finished")
        if compute.all(finished).as_py() is not False:
            return []
        return rows_of(file.read().filter(compute.invert(finished)))


class ScaleOut:
    """A run on a cluster: started, looked at now and then, stopped or taken to its end."""

    def __init__(
        self,
        cluster: Cluster,
        recipe: Recipe,
        limits: Limits,
        *,
        workers: int,
        cores: int,
        used: tuple[int, float] = (0, 0.0),
    ) -> None:
        """`used` are requests and money of the same budget that other judges have had."""
        ray = cluster.ray
        self._ray, self._workers, self._cores = ray, workers, cores
        share = None if limits.concurrency is None else limits.concurrency // workers
        self._recipe = replace(recipe, limits=Limits(concurrency=share, retries=limits.retries))
        # If it were lost, what was spent would be forgotten; so it is on this node and is not restarted.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        actor = ray.remote(Coordinator).options(num_cpus=0, scheduling_strategy=here)
        self._coordinator = actor.remote(limits, *used)
        self._thread: threading.Thread | None = None
        self._fault: Exception | None = None
        self.seen = ClusterStanding()  # when it was last looked at

    def start(self, work: Work, done: Finished) -> None:
        """Begin; about the pairs that are done this judge is not asked."""
        ray = self._ray
        finished, begun = ray.put(done), ray.put(begun_in(self._recipe.place))
        data = ray.data.from_items(list(work.tasks), override_num_blocks=len(work.tasks)).map_batches(
            Worker,
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=self._workers, max_tasks_in_flight_per_actor=2),
            fn_constructor_args=(
                self._recipe,
                partial(_call, self._coordinator),
                partial(ray.get, finished),
                partial(ray.get, begun),
                _begun_anew,
            ),
            num_cpus=self._cores,
        )
        self._thread = threading.Thread(target=self._take, args=(data, (finished, begun)), daemon=True)
        self._thread.start()

    def _take(self, data: Any, held: object) -> None:
        """Take what comes; whatever the workers need is held until they are done."""
        try:
            for _ in data.iter_batches(batch_size=None):
                pass
        except Exception as fault:
            self._fault = fault

    def wait(self, seconds: float) -> bool:
        """Wait a little; whether all is done."""
        assert self._thread is not None
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def standing(self) -> ClusterStanding:
        """How far all workers are."""
        self.seen = self._ray.get(self._coordinator.standing.remote())
        return self.seen

    def stop(self) -> None:
        """Begin no other pair; what is under way is brought to its end and written."""
        self._ray.get(self._coordinator.stop.remote())

    def outcome(self) -> ClusterStanding:
        """How it ended; raises a fault of the machinery. What a judge failed on is in the standing."""
        if self._fault is not None:
            raise explained_fault(self._fault, self._recipe.place.name) from None
        return self.standing()


def explained_fault(fault: Exception, out: str) -> EvenhandError:
    """What Ray raised, in a sentence: mostly a worker that was lost again and again."""
    cause: BaseException = fault
    while (inner := getattr(cause, "cause", None) or cause.__cause__) is not None:
        cause = inner
    lost = "ActorDied" in type(cause).__name__ or "ActorUnavailable" in type(cause).__name__
    said = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    return EngineError(
        "the workers are lost" if lost else f"a worker failed: {said}",
        reason="worker_lost",
        hint=f"what was judged is in {out}; the same command goes on from there",
    )


async def _call(coordinator: Any, name: str, *arguments: Any) -> Any:
    return await asyncio.wrap_future(getattr(coordinator, name).remote(*arguments).future())


def _begun_anew() -> bool:
    """Whether this worker replaces one that was lost."""
    import ray

    return bool(ray.get_runtime_context().was_current_actor_reconstructed)
