-- Intervals in which workers ran tasks of other clients, of a run that shows the tasks of one client
-- only. Times are in ns.
-- depends on: _bounds, _other_transitions
with steps as (
    select worker, finish_state, epoch_ns(time) as a,
           lead(epoch_ns(time)) over (partition by worker, _key order by time, seq) as b
    from _other_transitions
)
select worker, a as start, coalesce(b, epoch_ns(last)) as stop
from steps cross join _bounds where finish_state = 'executing'
