-- The last attempt and the number of attempts of each life of a key that has chunks. A key that
-- was forgotten may be submitted again: that is another life, not a retry.
-- depends on: _claimed_chunks, _seen_chunks, attempts, scheduler_transitions
-- by key: _claimed_chunks, _seen_chunks, attempts, scheduler_transitions
with keys as (
    select distinct key, key_type from _claimed_chunks union
    select distinct key, key_type from _seen_chunks
), forgotten as (
    select key, key_type, seq from scheduler_transitions where finish_state = 'forgotten'
), lives as (
    select a.key, a.key_type, a.attempt, any_value(a.exception) as exception,
           count(f.seq) as life
    from keys k join attempts a on a.key = k.key and a.key_type = k.key_type
    left join forgotten f on f.key = a.key and f.key_type = a.key_type and f.seq < a._seq
    group by a.key, a.key_type, a.attempt
)
select key, key_type, max(attempt) as attempt, count(*) as n_attempts,
       arg_max(exception, attempt) filter (exception is not null) as exception
from lives group by key, key_type, life
