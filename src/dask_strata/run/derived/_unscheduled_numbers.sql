-- Numbers of the attempts that only workers recorded; they follow those of the scheduler.
-- depends on: _attempt_numbers, _worker_executions
select number, _key, (select count(*) from _attempt_numbers)
                         + row_number() over (order by start, key) as attempt
from _worker_executions where not scheduled
