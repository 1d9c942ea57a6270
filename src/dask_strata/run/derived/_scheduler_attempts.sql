-- Attempts as the scheduler records them: the periods that a key was in processing.
-- `last_row` is the transition that ended the period, null if none did.
-- depends on: _attempt_numbers, _transitions, scheduler_transitions
-- by key: _attempt_numbers, _transitions, scheduler_transitions
with periods as (
    select seq, _key, life, time as start, next_time as stop, _row as first_row, next_row as last_row
    from _transitions where finish_state = 'processing'
    union all by name
    select seq, _key, life, time as stop, _row as last_row
    from _transitions where start_state = 'processing' and previous_state is null
), numbered as (
    select p.*, n.number from periods p
    join _attempt_numbers n on n._row = coalesce(p.first_row, p.last_row)
)
select n.number, n.seq, n._key, n.life, n.start, n.stop, n.last_row, e.finish_state as end_state,
       e.stimulus_id, b.worker as first_worker, e.worker as last_worker, e.thread,
       e.nbytes, e.typename, e.exception, e.traceback, e.run_id
from numbered n left join scheduler_transitions b on b._row = n.first_row
left join scheduler_transitions e on e._row = n.last_row
