-- Intervals in which a worker could not go on, by condition: `paused worker` (Dask had paused it),
-- `spill` (it wrote results to disk or read them), `blocked event loop`, `silent worker` (it gave no
-- sign of life until the scheduler removed it). Times are in ns.
-- depends on: _loop_blocks, _pauses, _silences, spills
select worker, 'paused worker' as condition, epoch_ns(start) as start, epoch_ns(stop) as stop
from _pauses
union all
select worker, 'spill', epoch_ns(time) - (seconds * 1e9)::bigint, epoch_ns(time)
from spills where seconds is not null
union all
select worker, 'blocked event loop', start_ns, stop_ns from _loop_blocks where worker is not null
union all
select worker, 'silent worker', epoch_ns(start), epoch_ns(stop) from _silences
