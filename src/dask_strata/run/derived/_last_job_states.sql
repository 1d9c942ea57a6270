-- Last report of each batch job. A fact that a later report lacks is taken from an earlier one.
-- depends on: job_states
select system, job, max(time) as time, arg_max(name, time) as name, arg_max(state, time) as state,
       nullif(arg_max(coalesce(reason, ''), time), '') as reason, bool_or(ended) as ended,
       arg_max(exit_code, time) as exit_code, arg_max(signal, time) as signal,
       arg_max(queue, time) as queue, arg_max(account, time) as account,
       arg_max(nodes, time) as nodes, arg_max(n_nodes, time) as n_nodes,
       min(submitted) as submitted, arg_max(start, time) as start, arg_max(stop, time) as stop,
       arg_max(used_seconds, time) as used_seconds,
       arg_max(time_limit_seconds, time) as time_limit_seconds,
       max(memory_used_bytes) as memory_used_bytes,
       arg_max(memory_limit_bytes, time) as memory_limit_bytes,
       arg_max(cpus, time) as cpus, arg_max(worker_name, time) as worker_name
from job_states where job is not null group by system, job
