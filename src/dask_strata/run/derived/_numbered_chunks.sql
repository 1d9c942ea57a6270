-- All chunks, claimed or seen, numbered; with the attempt that processed them last.
-- depends on: _chunk_lives, _claimed_chunks, _seen_chunks
-- by key: _chunk_lives, _claimed_chunks, _seen_chunks
with all_chunks as (
    select * from _claimed_chunks
    union all by name
    select any_value(_key) as _key, key, key_type, uri, file, any_value(dataset) as dataset, tree, first, last,
           false as of_runner
    from _seen_chunks where not claimed
    group by key, key_type, uri, file, tree, first, last
)
select e.*, t.attempt, coalesce(t.n_attempts, 0) as n_attempts,
       t.exception as any_exception, row_number() over () as chunk,
       count(*) over (partition by e.key, e.key_type, t.attempt) as n_of_task,
       count(*) over (partition by e.key, e.key_type, t.attempt, file) as n_of_file
from all_chunks e left join _chunk_lives t on t.key = e.key and t.key_type = e.key_type
