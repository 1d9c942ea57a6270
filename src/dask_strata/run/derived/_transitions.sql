-- Each transition of the scheduler, with the previous and the next one of the same key, and the
-- number of the key's life: a key that was forgotten may be submitted again.
-- depends on: scheduler_transitions
-- by key: scheduler_transitions
select _row, _key, seq, time, start_state, finish_state,
       lead(_row) over life_so_far as next_row, lead(time) over life_so_far as next_time,
       lag(finish_state) over life_so_far as previous_state,
       1 + coalesce(sum((finish_state = 'forgotten')::int) over (
           partition by _key order by seq
           rows between unbounded preceding and 1 preceding), 0)::bigint as life
from scheduler_transitions window life_so_far as (partition by _key order by seq)
