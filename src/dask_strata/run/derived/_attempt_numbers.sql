-- Numbers of the scheduler's attempts, in the order in which they began: `_row` is the transition
-- into processing, or, of an attempt that began before the recording, the one out of it.
-- depends on: scheduler_transitions
with candidates as (
    -- Most keys are none: the rows into and out of processing suffice to find that.
    select _key from scheduler_transitions
    where start_state = 'processing' or finish_state = 'processing'
    group by _key having arg_min(start_state = 'processing', seq)
), begun_before as (
    select arg_min(_row, seq) as _row, min(seq) as seq, _key from scheduler_transitions
    where _key in (select _key from candidates)
    group by _key having arg_min(start_state, seq) = 'processing'
)
select _row, _key, row_number() over (order by seq) as number from (
    select _row, _key, seq from scheduler_transitions where finish_state = 'processing'
    union all by name from begun_before
)
