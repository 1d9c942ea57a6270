-- Times in which a key was to be fetched by a worker, on its way there, or waiting for a resource,
-- by the transitions of the worker. Times are in ns; `b` is null if the record has no end.
-- depends on: worker_transitions
-- by key: worker_transitions
with steps as (
    select worker, _key, finish_state as state, epoch_ns(time) as a,
           lead(epoch_ns(time)) over (partition by _key, worker order by time, seq) as b
    from worker_transitions
    where file is null and (finish_state in ('fetch', 'flight', 'constrained')
                            or start_state in ('fetch', 'flight', 'constrained'))
)
select * from steps where state in ('fetch', 'flight', 'constrained')
