-- The number of tasks that ran in the process of a Darshan log, from each moment at which it
-- changed. Where it is 1, the sum of the attempts' numbers is the attempt's number.
-- depends on: _io_executions
with changes as (
    select log, t0 as t, 1 as n, attempt from _io_executions
    union all select log, t1 + 1, -1, -attempt from _io_executions
), moments as (
    select log, t, sum(n) as n, sum(attempt) as attempt from changes group by log, t
)
select log, t, (sum(n) over log_order)::bigint as n,
       (sum(attempt) over log_order)::bigint as attempt
from moments window log_order as (partition by log order by t)
