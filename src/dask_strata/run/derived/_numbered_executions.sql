-- Recorded executions of tasks, numbered within one attempt (key, worker and Dask's run id).
-- depends on: executions
-- by key: executions
select _row, _key, worker, run_id, start,
       row_number() over (partition by _key, worker, run_id order by seq) as nth
from executions where kind <> 'actor'
