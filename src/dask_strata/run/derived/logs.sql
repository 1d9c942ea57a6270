-- Entries of logs, with the attempt that logged each.
-- depends on: _log_entries, attempts
with numbered as (
    select _key, worker, run_id, any_value(attempt) as attempt from attempts
    where run_id is not null group by all having count(*) = 1
)
select e.* exclude (run_id), a.attempt from _log_entries e left join numbered a
  on a._key = e._key and a.worker = e.worker and a.run_id = e.run_id
order by e.number
